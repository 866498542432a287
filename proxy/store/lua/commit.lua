-- Settle calls, then replace the record if its version is still the expected one. Behind ledger.lua; the arithmetic is the one of book.py.
--
-- KEYS     1-3 see ledger.lua
--          4 settled: sorted set, settled lease by the time it may be forgotten (s)
-- ARGV     1 ttl (ms)  2 1 to replace the record, 0 to leave it  3 the version it is expected at  4 the new record
--          5 how long to remember a settlement (s)  6 how many to remember at most
--          7 … seven for each settlement: lease, steps, input tokens, output tokens, cost, body bytes, windows ("|" between)
-- Returns  conflict (0 or 1), version now, record now (only on a conflict)

local settled = KEYS[4]
local replace, expected, record = ARGV[2] == '1', tonumber(ARGV[3]), ARGV[4]
local remember = tonumber(ARGV[5])

local version, started, ratio, known = load('version', 'started', 'ratio', 'known')
version, ratio, known = tonumber(version) or 0, tonumber(ratio) or 0, tonumber(known) or 0
local changed = {}
if not started then
  changed = {'started', exact(now)}
end

if #ARGV > 6 then
  redis.call('ZREMRANGEBYSCORE', settled, '-inf', now)
  for i = 7, #ARGV, 7 do
    local lease, input, bytes = ARGV[i], tonumber(ARGV[i + 2]), tonumber(ARGV[i + 5])
    release(lease)
    if redis.call('ZADD', settled, 'NX', now + remember, lease) == 1 then
      add(life, 0, ARGV[i + 1], input, ARGV[i + 3], ARGV[i + 4])
      for window in string.gmatch(ARGV[i + 6], '[^|]+') do
        add(stretch(window), 0, ARGV[i + 1], input, ARGV[i + 3], ARGV[i + 4])
      end
      if bytes > 0 then
        ratio, known = math.max(ratio, input / bytes), math.max(known, bytes)
        for _, value in ipairs({'ratio', ratio, 'known', known}) do
          changed[#changed + 1] = value
        end
      end
    end
  end
  redis.call('ZREMRANGEBYRANK', settled, 0, -tonumber(ARGV[6]) - 1)
  redis.call('PEXPIRE', settled, remember * 1000)
end

local conflict = false
if replace and version == expected then
  version = version + 1
  for _, value in ipairs({'version', version, 'record', record}) do
    changed[#changed + 1] = value
  end
elseif replace then
  -- The very record asked for, one version on, is this commit sent again after its reply was lost.
  conflict = not (version == expected + 1 and redis.call('HGET', ledger, 'record') == record)
end
store(changed, tonumber(ARGV[1]))

if conflict then
  return {1, version, redis.call('HGET', ledger, 'record')}
end
return {0, version, false}
