-- Settle calls in one ledger, then replace the record if its version is still the expected one. Behind ledger.lua; the arithmetic is the
-- one of book.py.
--
-- KEYS     1, 2 see ledger.lua
--          3 settled: sorted set, settled lease by the time it may be forgotten (s)
--          4 … usage of a team, one for each day: hash, "model|unit" -> amount
-- ARGV     1 one MessagePack list:
--          1 ttl (ms)  2 whether to replace the record  3 the version it is expected at  4 how long to remember a settlement (s)
--          5 how many to remember, about  6 how often the index hears of the session (s), 0 never  7 how long a team's usage is kept (ms)
--          8 … eleven for each settlement: lease, steps, input tokens, output tokens, cost, body bytes, windows ("|" between), the reason
--          the session's run stands stopped for ("" goes on, "=" no news), the stopped session below and its reason ("" for none), the
--          place in KEYS of the day's usage (0 for none), the model
--          2 the new record
-- Returns  conflict (0 or 1), version now, record now (only on a conflict), 1 if the index is to hear of the session now

local settled = KEYS[3]
local asked = cmsgpack.unpack(ARGV[1])
local replace, expected, record = asked[2], asked[3], ARGV[2]
local remember = asked[4]

local stored = redis.call('HMGET', ledger, 'life', 'started', 'version', 'ratio', 'known', 'listed')
life = counters(stored[1])
local version, ratio, largest = tonumber(stored[3] or 0), tonumber(stored[4] or 0), tonumber(stored[5] or 0)

local changed = stored[2] and {} or {'started', string.format('%.17g', now)}
local function change(name, value)
  changed[#changed + 1] = name
  changed[#changed + 1] = value
end

if #asked > 7 then
  for i = 8, #asked, 11 do
    local lease, steps, input, output, cost, bytes, within, stop, fallen, day, model = unpack(asked, i, i + 10)
    release(lease)
    if redis.call('ZADD', settled, 'NX', now + remember, lease) == 1 then
      add(life, 0, steps, input, output, cost)
      for window in string.gmatch(within, '[^|]+') do
        add(stretch(window), 0, steps, input, output, cost)
      end
      if bytes > 0 then
        ratio, largest = math.max(ratio, input / bytes), math.max(largest, bytes)
        change('ratio', string.format('%.17g', ratio))
        change('known', largest)
      end
      if stop ~= '=' then
        change('stop', stop)
      end
      if fallen ~= '' then
        change('fallen', fallen)
      end
      if day > 0 then
        local row = KEYS[day]
        for unit, amount in pairs({steps = steps, input = input, output = output, cost = cost}) do
          redis.pcall('HINCRBY', row, model .. '|' .. unit, math.min(amount, 2 ^ 53)) -- no sum of such is counted to its end
        end
        redis.call('PEXPIRE', row, asked[7])
      end
    end
  end
  if time[2] % 8 == 0 then -- now and then is enough
    redis.call('ZREMRANGEBYSCORE', settled, '-inf', now)
    redis.call('ZREMRANGEBYRANK', settled, 0, -asked[5] - 1)
  end
  redis.call('PEXPIRE', settled, remember * 1000)
end

local conflict = false
if replace and version == expected then
  version = version + 1
  change('version', version)
  change('record', record)
elseif replace then
  -- The very record asked for, one version on, is this commit sent again after its reply was lost.
  conflict = not (version == expected + 1 and redis.call('HGET', ledger, 'record') == record)
end
local often = asked[6]
local unheard = often > 0 and (version > 0 or replace) and now - tonumber(stored[6] or 0) >= often
if unheard then
  change('listed', string.format('%.17g', now))
end
store(changed, asked[1], not stored[2])

if conflict then
  return {1, version, redis.call('HGET', ledger, 'record'), unheard and 1 or 0}
end
return {0, version, false, unheard and 1 or 0}
