-- End a lease as if it had never been, because another ledger refused the call. Behind ledger.lua.
--
-- KEYS     1, 2 see ledger.lua  3 members (of an account only), see open.lua
-- ARGV     1 lease
-- Returns  nothing

if redis.call('HEXISTS', ledger, 'hold ' .. ARGV[1]) == 0 then
  return -- it never got here, or is over
end
life = counters(redis.call('HGET', ledger, 'life'))
local member = release(ARGV[1])
if string.sub(member, 1, 1) == '+' then
  member = string.sub(member, 2)
  local alone = true
  for _, hold in ipairs(redis.call('HVALS', ledger)) do
    local _, _, _, _, _, other = string.match(hold, HOLD)
    alone = alone and other ~= member and other ~= '+' .. member
  end
  if alone then
    redis.call('ZREM', KEYS[3], member)
  end
end
store({}, 1)
