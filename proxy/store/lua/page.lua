#!lua
-- A part of the index, the sessions used last first.
--
-- KEYS     1 index, see list.lua
-- ARGV     1, 2 the place behind which it begins: time (s, or "+inf") and session in hex  3 how many sessions at most  4 tenant, and 5 1 if
--          only that one's  6 what a label must contain  7 how many entries to look at, at most
-- Returns  1 if there may be more behind, else 0; time and session in hex of the last entry looked at; then entry, time (s) of each found

local from, behind = ARGV[1], ARGV[2]
local count, only, budget = tonumber(ARGV[3]), ARGV[5] == '1', tonumber(ARGV[7])
local offset, more = 0, 0
local found = {}

while budget > 0 and more == 0 do
  local some = redis.call('ZRANGE', KEYS[1], from, '-inf', 'BYSCORE', 'REV', 'LIMIT', offset, 500, 'WITHSCORES')
  if #some == 0 then
    break
  end
  local first = from
  for i = 1, #some, 2 do
    local session, tenant, label = string.match(some[i], '^([^\31]*)\31([^\31]*)\31(.*)$')
    -- Of entries with the same time the greater session comes first.
    if not (tonumber(some[i + 1]) == tonumber(from) and behind ~= '' and session >= behind) then
      if (not only or tenant == ARGV[4]) and string.find(label, ARGV[6], 1, true) then
        if #found == 2 * count then
          more = 1
          break
        end
        found[#found + 1] = some[i]
        found[#found + 1] = some[i + 1]
      end
      from, behind = some[i + 1], session
    end
    budget = budget - 1
  end
  offset = first == from and offset + 500 or 0
end

return {(more == 1 or budget <= 0) and 1 or 0, from, behind, unpack(found)}
