#!lua
-- Put a session into the index, or move it to its front.
--
-- KEYS     1 index: sorted set, "session in hex, tenant, label" with unit separators between, by the time it was used last (s)
-- ARGV     1 the session's entry  2 how long an entry is kept (s)
-- Returns  nothing

local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1e6

redis.call('ZADD', KEYS[1], now, ARGV[1])
redis.call('PEXPIRE', KEYS[1], math.ceil(1000 * ARGV[2]))
if time[2] % 8 == 0 then -- now and then is enough
  redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - ARGV[2])
end
