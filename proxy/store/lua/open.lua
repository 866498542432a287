-- Reserve for one call in one ledger: of the session itself, which is loaded too, or of an account that pays for it. Behind ledger.lua and
-- limits.lua; the arithmetic is the one of book.py.
--
-- KEYS     1, 2 see ledger.lua  3 settled, see commit.lua
--          4 members (of an account only): sorted set, session by the time until which it counts as being there (s)
-- ARGV     one MessagePack list, "" in it where there is no deadline or limit:
--          1 ttl (ms)  2 lease  3 tag  4 steps  5 body bytes  6 input bound (tokens)  7 attached (tokens)  8 output wanted  9 modest output
--          10 floor  11, 12 prices of input and output (pico-dollars per token)  13 the lease's life (s)  14 "patient" or "again", see
--          contract.py  15 what is paid beside tokens (nano-dollars)  16 ceilings, "=" for those that the session was last opened with
--          17 deadline (s)  18, 19 tightening: ceilings, deadline  20 how many tags of other leases to return at most
--          of an account only: 21, 22 calls and sessions at most  23 how long a session counts after its last call (s)  24 the member
-- Returns  the record, and one MessagePack list: version, now, started, counters (8) as in ledger.lua, deadline, refused, how many there were
--          at once, last, step, granted output, bound, held cost, the ceilings in force (nil if they are those asked with), spent and held
--          of each, tags of other live leases, stop, fallen, amended (see limits.lua)
--          refused: 0 for the deadline, a ceiling's place, -1 for the calls, -2 for the sessions, -3 for an operator, -4 for a lease that is
--          settled, nil for none; last: a ceiling's place or nil

local MOST = 2 ^ 53 -- of what a call may hold: more is not counted exactly, and sums of it could not be written

local asked = cmsgpack.unpack(ARGV[1])
local lease, steps = asked[2], asked[4]
local wanted, modest, floor = asked[8], asked[9], asked[10]
local patient = asked[14] == 'patient'
local input_price, output_price = asked[11], asked[12]
local member = asked[24]

local stored = redis.call('HMGET', ledger, 'life', 'started', 'ceilings', 'deadline', 'tightened', 'tightened_deadline', 'stop',
  member and 'stop' or 'record', 'version', 'ratio', 'known', 'fallen', 'amended')
life = counters(stored[1])
local started, own, own_deadline = tonumber(stored[2] or now), stored[3], stored[4]
local tightened, tightened_deadline = stored[5], tonumber(stored[6] or '')
local changed = stored[2] and {} or {'started', string.format('%.17g', started)}

local function change(name, value)
  changed[#changed + 1] = name
  changed[#changed + 1] = value
end

local calls, joined = redis.call('ZCARD', leases), false
local alone = calls == 0
if not alone then
  for _, expired in ipairs(redis.call('ZRANGE', leases, '-inf', now, 'BYSCORE')) do
    release(expired)
  end
  joined = string.sub(release(lease), 1, 1) == '+'
  calls = redis.call('ZCARD', leases)
elseif life[HELD + STEPS] + life[HELD + INPUT] + life[HELD + OUTPUT] > 0 then
  -- The server evicted the leases: nothing stays held without one.
  for _, field in ipairs(redis.call('HKEYS', ledger)) do
    if string.sub(field, 1, 5) == 'hold ' then
      redis.call('HDEL', ledger, field)
    end
  end
end
if calls == 0 then
  idle = true
  hold_nothing(life)
  for _, numbers in pairs(windows) do
    hold_nothing(numbers)
  end
end

local limits, until_at = asked[16], asked[17]
if limits == '=' then
  limits, until_at = own or '', own_deadline or ''
elseif not member then
  -- Kept for those who are charged for its descendants, and for those who look.
  if limits ~= (own or '') then
    change('ceilings', limits)
  end
  if until_at ~= (own_deadline or '') then
    change('deadline', until_at)
  end
  if asked[18] ~= '' then
    local stricter = written(merged(parsed(tightened or ''), parsed(asked[18])))
    if stricter ~= tightened then
      change('tightened', stricter)
      tightened = stricter
    end
  end
  if asked[19] ~= '' then
    tightened_deadline = math.min(tightened_deadline or tonumber(asked[19]), tonumber(asked[19]))
    change('tightened_deadline', string.format('%.17g', tightened_deadline))
  end
end
local ceilings, deadline, text_in_force, mark = in_force(limits, until_at, tightened, tightened_deadline, stored[13])
if asked[16] == '=' then
  text_in_force = text_in_force or limits
end

local bound, ratio = asked[6], not member and tonumber(stored[10] or 0) or 0
if ratio > 0 then
  local size = asked[5]
  local known_size = math.min(size, tonumber(stored[11]))
  bound = math.min(bound, math.ceil(known_size * ratio * 1.1) + size - known_size + 512)
end
bound = bound + asked[7]
local input_cost = math.ceil(bound * input_price / 1000) + asked[15]

local refused, at_once, granted, last = false, 0, false, false
local step = life[STEPS] + life[HELD + STEPS] + 1
if asked[14] == 'again' and redis.call('ZSCORE', KEYS[3], lease) then
  refused = -4
elseif mark ~= '' then
  refused = -3
elseif deadline and math.max(now - started, 0) >= deadline then
  refused = 0
end

-- Every ceiling, in order: what of it the call takes before its answer, in its unit; what each token of the answer takes, in thousandths;
-- what is left behind the former; and how much answer there is room for. Where the answer costs nothing the input alone must fit, and
-- what takes nothing always does. A patient call takes no less than the modest output where only what others hold is in the way of that.
for place, one in ipairs(ceilings) do
  local numbers = one.window == '' and life or stretch(one.window, tonumber(one.ended))
  local spent, held = used(one.unit, numbers)
  local need, rate = bound, 1000
  if one.unit == 'steps' then
    need, rate = steps, 0
  elseif one.unit == 'cost' then
    need, rate = input_cost, output_price
  elseif one.unit == 'input' then
    rate = 0
  elseif one.unit == 'output' then
    need = 0
  end
  local rest, fits = one.limit - spent - held - need, false
  if rate == 0 then
    fits = (rest >= 0 or need == 0) and wanted
  else
    local available = math.floor(rest * 1000 / rate)
    fits = available >= wanted and wanted or available >= modest and modest or available >= floor and available
    if patient and fits and fits < modest and math.floor((rest + held) * 1000 / rate) >= modest then
      fits = false
    end
  end
  if not fits or one.limit <= 0 then
    refused = refused or place
  elseif rate > 0 then
    granted = granted and math.min(granted, fits) or fits
  end
  one.spent, one.held, one.need, one.rate, one.rest = spent, held, need, rate, rest
end

-- Too many calls or sessions at once.
local most = tonumber(asked[22] or '')
if not refused and tonumber(asked[21] or '') and calls >= tonumber(asked[21]) then
  refused, at_once = -1, calls
elseif not refused and most then
  redis.call('ZREMRANGEBYSCORE', KEYS[4], '-inf', now)
  at_once = redis.call('ZCARD', KEYS[4])
  local there = redis.call('ZSCORE', KEYS[4], member)
  if most <= 0 or not there and at_once >= most then
    refused = -2
  end
  joined = joined or not there
end

local tags = {}
if calls > 0 and not member then
  local others = redis.call('ZRANGE', leases, 0, 4 * asked[20] - 1, 'REV') -- some may be those of other sessions' calls
  for i, other in ipairs(others) do
    others[i] = 'hold ' .. other
  end
  for _, hold in ipairs(redis.call('HMGET', ledger, unpack(others))) do
    local tag = hold and string.match(hold, '^%d+:%d+:%d+:%d+:([^:]+):') or nil
    if tag and #tags < asked[20] then
      tags[#tags + 1] = tag
    end
  end
end

local held_cost, told = 0, {}
if refused then
  granted = false
  for place, one in ipairs(ceilings) do
    told[2 * place - 1], told[2 * place] = one.spent, one.held
  end
else
  local output = granted or wanted
  held_cost = math.min(input_cost + math.ceil(output * output_price / 1000), MOST)
  local within = {}
  for place, one in ipairs(ceilings) do
    local taken = math.ceil(output * one.rate / 1000)
    -- What others hold are worst cases, most of which comes back; their steps do not.
    local rest = one.unit == 'steps' and one.rest or one.rest + one.held
    if not last and rest - taken < one.need + math.ceil(floor * one.rate / 1000) then
      last = place
    end
    told[2 * place - 1], told[2 * place] = one.spent, one.held + one.need + taken
    if one.window ~= '' and not within[one.window] then
      within[one.window] = true
      within[#within + 1] = one.window
      add(stretch(one.window), HELD, steps, bound, math.min(output, MOST), held_cost)
    end
  end
  output = math.min(output, MOST)
  add(life, HELD, steps, bound, output, held_cost)
  local speaks = ''
  if most then
    redis.call('ZADD', KEYS[4], now + asked[23], member)
    speaks = (joined and '+' or '') .. member
  end
  redis.call('ZADD', leases, now + asked[13], lease)
  change('hold ' .. lease,
    string.format('%d:%d:%d:%d:%s:%s:%s', steps, bound, output, held_cost, asked[3], speaks, table.concat(within, '|')))
end

local ttl = asked[1]
store(changed, ttl, not stored[2])
if not refused then
  -- Leases never go before their time, whatever the ttl. A new key has no end that a later one could be compared with.
  local longest = math.max(ttl, math.ceil(1000 * asked[13]))
  if alone then
    redis.call('PEXPIRE', leases, longest)
  else
    redis.call('PEXPIRE', leases, longest, 'GT')
  end
  if most then
    redis.call('PEXPIRE', KEYS[4], math.max(ttl, math.ceil(1000 * asked[23])))
  end
end

return {stored[8], '\220\0\18' .. cmsgpack.pack(tonumber(stored[9] or 0), now, started, life, deadline or nil, refused or nil, at_once,
  last or nil, step, granted or nil, bound, held_cost, text_in_force or nil, told, tags, stored[7] or nil, stored[12] or nil,
  stored[13] or nil)}
