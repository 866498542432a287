#!lua
-- Settle calls, then replace the record if its version is still the expected one. The arithmetic is the one of memory.py.
--
-- KEYS     1 session: hash of record, version, counters and tightened limits
--          2 leases: sorted set, lease by the time it expires (s)
--          3 holds: hash, lease -> "tokens:tag"
--          4 settled: sorted set, settled lease by the time it may be forgotten (s)
-- ARGV     1 ttl (ms)  2 1 to replace the record, 0 to leave it  3 the version it is expected at  4 the new record
--          5 how long to remember a settlement (s)  6 how many to remember at most
--          7 … five for each settlement: lease, steps, input tokens, output tokens, body bytes
-- Returns  conflict (0 or 1), version now, record now (only on a conflict)

local session, leases, holds, settled = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local ttl, replace, expected, record = tonumber(ARGV[1]), ARGV[2] == '1', tonumber(ARGV[3]), ARGV[4]
local remember = tonumber(ARGV[5])

local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1e6

local stored = redis.call('HMGET', session, 'version', 'steps', 'input', 'output', 'reserved', 'started', 'ratio', 'known')
local version = tonumber(stored[1]) or 0
local steps, input, output = tonumber(stored[2]) or 0, tonumber(stored[3]) or 0, tonumber(stored[4]) or 0
local reserved, started, ratio = tonumber(stored[5]) or 0, tonumber(stored[6]) or now, tonumber(stored[7]) or 0
local known = tonumber(stored[8]) or 0

if #ARGV > 6 then
  redis.call('ZREMRANGEBYSCORE', settled, '-inf', now)
  for i = 7, #ARGV, 5 do
    local lease, cost, bytes = ARGV[i], tonumber(ARGV[i + 2]), tonumber(ARGV[i + 4])
    local hold = redis.call('HGET', holds, lease)
    if hold then
      redis.call('ZREM', leases, lease)
      redis.call('HDEL', holds, lease)
      reserved = reserved - tonumber(string.match(hold, '^[^:]*'))
    end
    if redis.call('ZADD', settled, 'NX', now + remember, lease) == 1 then
      steps, input, output = steps + tonumber(ARGV[i + 1]), input + cost, output + tonumber(ARGV[i + 3])
      if bytes > 0 then
        ratio = math.max(ratio, cost / bytes)
        known = math.max(known, bytes)
      end
    end
  end
  redis.call('ZREMRANGEBYRANK', settled, 0, -tonumber(ARGV[6]) - 1)
  redis.call('PEXPIRE', settled, remember * 1000)
end

local conflict = false
local changed = {'started', started, 'steps', steps, 'input', input, 'output', output, 'reserved', reserved,
  'ratio', ratio, 'known', known}
if replace and version == expected then
  version = version + 1
  for _, value in ipairs({'version', version, 'record', record}) do
    changed[#changed + 1] = value
  end
elseif replace then
  -- The very record asked for, one version on, is this commit sent again after its reply was lost.
  conflict = not (version == expected + 1 and redis.call('HGET', session, 'record') == record)
end
redis.call('HSET', session, unpack(changed))
-- A shorter ttl takes no life away, and what belongs to a session lives as long as it does.
local life = math.max(redis.call('PTTL', session), ttl)
for _, key in ipairs({session, leases, holds}) do
  redis.call('PEXPIRE', key, life)
end

if conflict then
  return {1, version, redis.call('HGET', session, 'record')}
end
return {0, version, false}
