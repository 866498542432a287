#!lua
-- Let a living lease end at another time.
--
-- KEYS     1 leases, see ledger.lua  2 members (of an account only), see open.lua
-- ARGV     1 lease  2 its life from now on (s)  of an account only: 3 how long a session counts after its last call (s)  4 the member
-- Returns  1 if the lease lives, 0 if not

local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1e6

if not redis.call('ZSCORE', KEYS[1], ARGV[1]) then
  return 0
end
redis.call('ZADD', KEYS[1], now + tonumber(ARGV[2]), ARGV[1])
redis.call('PEXPIRE', KEYS[1], math.ceil(1000 * ARGV[2]), 'GT')
if KEYS[2] then
  redis.call('ZADD', KEYS[2], now + tonumber(ARGV[3]), ARGV[4])
end
return 1
