#!lua
-- A part of the index, the sessions used last first.
--
-- KEYS     1 index, see list.lua
-- ARGV     1, 2 the place behind which it begins: time (s, or "+inf") and session in hex  3 how many sessions at most  4 tenant, and 5 1 if
--          only that one's  6 what a label must contain  7 how many entries to look at, at most
-- Returns  1 if there may be more behind, else 0; time and session in hex of the last entry looked at; then entry, time (s) of each found

local index, from, behind = KEYS[1], ARGV[1], ARGV[2]
local count, only, search, left = tonumber(ARGV[3]), ARGV[5] == '1', ARGV[6], tonumber(ARGV[7])
local tenant = '\31' .. ARGV[4] .. '\31'
local rank, more, last = 0, 0, false
local found = {}

-- Most entries are passed over: by one look at the whole, before it is taken apart.
local function fits(entry)
  if only and not string.find(entry, tenant, 1, true) then
    return false
  end
  if search == '' then
    return true
  end
  return string.find(entry, search, 1, true) and string.find(string.match(entry, '^[^\31]*\31[^\31]*\31(.*)$'), search, 1, true)
end

if from ~= '+inf' then
  rank = redis.call('ZCOUNT', index, '(' .. from, '+inf')
  if behind ~= '' then
    -- Of entries with the same time the greater session comes first.
    for _, entry in ipairs(redis.call('ZRANGE', index, from, from, 'BYSCORE', 'REV')) do
      if string.match(entry, '^[^\31]*') >= behind then
        rank = rank + 1
      end
    end
  end
end

while left > 0 and more == 0 do
  local some = redis.call('ZRANGE', index, rank, rank + math.min(left, 500) - 1, 'REV')
  if #some == 0 then
    break
  end
  for _, entry in ipairs(some) do
    if fits(entry) then
      if #found == 2 * count then
        more = 1
        break
      end
      found[#found + 1] = entry
      found[#found + 1] = redis.call('ZSCORE', index, entry)
    end
    last = entry
  end
  rank, left = rank + #some, left - #some
end

if last then
  from, behind = redis.call('ZSCORE', index, last), string.match(last, '^[^\31]*')
end
return {(more == 1 or left <= 0) and 1 or 0, from, behind, unpack(found)}
