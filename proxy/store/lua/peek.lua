-- How a ledger stands, without a trace. Behind ledger.lua and limits.lua.
--
-- KEYS     1, 2 see ledger.lua  3 members, see open.lua
-- ARGV     1 ceilings, "=" for those that the session was last opened with  2 deadline (s), "" for none
-- Returns  nil if there is none, else record, version, now, when it is forgotten (s), started, counters, ceilings in force, spent and held of
--          each, deadline, calls under way, sessions there, stop, fallen, amended (see limits.lua)

local stored = redis.call('HMGET', ledger, 'life', 'started', 'ceilings', 'deadline', 'tightened', 'tightened_deadline', 'amended', 'record',
  'version', 'stop', 'fallen')
if not stored[2] then
  return false
end
life = counters(stored[1])
local expired = redis.call('ZRANGE', leases, '-inf', now, 'BYSCORE')
for _, lease in ipairs(expired) do
  give_back(redis.call('HGET', ledger, 'hold ' .. lease))
end

local limits, until_at = ARGV[1], ARGV[2]
if limits == '=' then
  limits, until_at = stored[3] or '', stored[4] or ''
end
local ceilings, deadline = in_force(limits, until_at, stored[5], tonumber(stored[6] or ''), stored[7])
local told = {}
for place, one in ipairs(ceilings) do
  local numbers = one.window == '' and life or known(one.window) or counters()
  told[2 * place - 1], told[2 * place] = used(one.unit, numbers)
end

local left = redis.call('PTTL', ledger)
return {stored[8], tonumber(stored[9] or 0), string.format('%.17g', now), string.format('%.17g', now + left / 1000), stored[2],
  life, written(ceilings), told, deadline and string.format('%.17g', deadline) or false,
  redis.call('ZCARD', leases) - #expired, redis.call('ZCOUNT', KEYS[3], string.format('(%.17g', now), '+inf'), stored[10], stored[11], stored[7]}
