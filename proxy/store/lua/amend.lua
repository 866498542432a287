-- Change a ledger as an operator says. Behind ledger.lua and limits.lua; the arithmetic is the one of book.py.
--
-- KEYS     1, 2 see ledger.lua
-- ARGV     1 ttl (ms)  2 1 to set back what is settled  3 1 to forget what was raised before  4 raised ceilings  5 deadline (s)  6 mark
--          7 note in hex; "=" leaves deadline, mark or note alone  8 1 to forget that its run stands stopped
--          9 what was seen, "amended" and "stop" of the ledger with a line break between; "=" for whatever it is
-- Returns  1, or 0 and no change where the ledger no longer is as it was seen

local stored = redis.call('HMGET', ledger, 'life', 'started', 'amended', 'stop')
if ARGV[9] ~= '=' and ARGV[9] ~= (stored[3] or '') .. '\n' .. (stored[4] or '') then
  return 0
end
life = counters(stored[1])
local changed = stored[2] and {} or {'started', string.format('%.17g', now)}

if ARGV[2] == '1' then
  changed = {'started', string.format('%.17g', now)}
  add(life, 0, -life[STEPS], -life[INPUT], -life[OUTPUT], -life[COST])
  for _, field in ipairs(redis.call('HKEYS', ledger)) do
    local numbers = string.sub(field, 1, 3) == 'in ' and known(string.sub(field, 4))
    if numbers then
      add(numbers, 0, -numbers[STEPS], -numbers[INPUT], -numbers[OUTPUT], -numbers[COST])
    end
  end
end

if ARGV[8] == '1' then
  redis.call('HDEL', ledger, 'stop', 'fallen')
end

local mark, deadline, note, raised = parts_of(stored[3])
if ARGV[3] == '1' then
  deadline, raised = '', ''
end
raised = written(merged(lasting(parsed(raised)), parsed(ARGV[4]), true))
deadline = ARGV[5] == '=' and deadline or ARGV[5]
mark = ARGV[6] == '=' and mark or ARGV[6]
note = ARGV[7] == '=' and note or ARGV[7]

local amended = table.concat({mark, deadline, note, raised}, '|')
if amended == '|||' then
  redis.call('HDEL', ledger, 'amended')
else
  changed[#changed + 1] = 'amended'
  changed[#changed + 1] = amended
end
store(changed, tonumber(ARGV[1]), not stored[2])
return 1
