-- Reserve for one call in one ledger: of the session itself, which is loaded too, or of an account that pays for it. Behind ledger.lua; the
-- arithmetic is the one of book.py.
--
-- KEYS     1, 2 see ledger.lua
--          3 members (of an account only): sorted set, session by the time until which it counts as being there (s)
-- ARGV     1 ttl (ms)  2 lease  3 tag  4 steps  5 body bytes  6 input bound (tokens)  7 attached (tokens)  8 output wanted  9 modest output
--          10 floor  11, 12 prices of input and output (pico-dollars per token)  13 the lease's life (s)  14 ceilings, "=" for those that the
--          session was last opened with  15 deadline (s)  16, 17 tightening: ceilings, deadline  18 how many tags of other leases to return
--          at most
--          of an account only: 19, 20 calls and sessions at most  21 how long a session counts after its last call (s)  22 the member
--          Ceilings are "unit|limit|end|window;" each. No deadline, end or limit is "".
-- Returns  record, version, now, started, counters as in ledger.lua, deadline, refused, how many there were at once, last, step, granted
--          output, bound, held cost, the ceilings in force (nil if they are those asked with), "spent held;" of each, tags of other live
--          leases, stop, fallen
--          refused: 0 for the deadline, a ceiling's place, -1 for the calls, -2 for the sessions, nil for none; last: a ceiling's place or
--          nil. Times are strings.

local lease, steps = ARGV[2], tonumber(ARGV[4])
local wanted, modest, floor = tonumber(ARGV[8]), tonumber(ARGV[9]), tonumber(ARGV[10])
local input_price, output_price = tonumber(ARGV[11]), tonumber(ARGV[12])
local member = ARGV[22]

local stored = redis.call('HMGET', ledger, 'life', 'started', 'ceilings', 'deadline', 'tightened', 'tightened_deadline', 'stop',
  member and 'stop' or 'record', 'version', 'ratio', 'known', 'fallen')
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

local function parsed(text)
  local list = {}
  for unit, limit, ended, window in string.gmatch(text, '(%a+)|(%-?%d+)|([^|]*)|([^;]*);') do
    list[#list + 1] = {unit = unit, limit = limit + 0, ended = ended, window = window, spent = 0, held = 0, need = 0, rate = 0, rest = 0}
  end
  return list
end

local limits, deadline, in_force = ARGV[14], ARGV[15], false
if limits == '=' then
  limits, deadline, in_force = own or '', own_deadline or '', own or ''
elseif not member then
  -- Kept for those who are charged for its descendants, and for those who look.
  if limits ~= (own or '') then
    change('ceilings', limits)
  end
  if deadline ~= (own_deadline or '') then
    change('deadline', deadline)
  end
  if ARGV[17] ~= '' then
    tightened_deadline = math.min(tightened_deadline or tonumber(ARGV[17]), tonumber(ARGV[17]))
    change('tightened_deadline', string.format('%.17g', tightened_deadline))
  end
end
deadline = tonumber(deadline)
if tightened_deadline then
  deadline = math.min(deadline or tightened_deadline, tightened_deadline)
end

local ceilings = parsed(limits)
if tightened or ARGV[16] ~= '' then
  local function written(list)
    local parts = {}
    for i, one in ipairs(list) do
      parts[i] = string.format('%s|%d|%s|%s;', one.unit, one.limit, one.ended, one.window)
    end
    return table.concat(parts)
  end

  -- The stricter of two lists, ceiling by ceiling, in the order of units.
  local function lower(list, by)
    for _, one in ipairs(by) do
      local other
      for _, candidate in ipairs(list) do
        if candidate.unit == one.unit and candidate.window == one.window then
          other = candidate
        end
      end
      if other then
        other.limit = math.min(other.limit, one.limit)
      else
        list[#list + 1] = one
      end
    end
    local ordered = {}
    for _, unit in ipairs({'steps', 'input', 'output', 'tokens', 'cost'}) do
      for _, one in ipairs(list) do
        if one.unit == unit then
          ordered[#ordered + 1] = one
        end
      end
    end
    return ordered
  end

  if ARGV[16] ~= '' then
    local stricter = written(lower(parsed(tightened or ''), parsed(ARGV[16])))
    if stricter ~= tightened then
      change('tightened', stricter)
      tightened = stricter
    end
  end
  ceilings = lower(ceilings, parsed(tightened))
  in_force = written(ceilings)
end

local bound, ratio = tonumber(ARGV[6]), not member and tonumber(stored[10] or 0) or 0
if ratio > 0 then
  local size = tonumber(ARGV[5])
  local known_size = math.min(size, tonumber(stored[11]))
  bound = math.min(bound, math.ceil(known_size * ratio * 1.1) + size - known_size + 512)
end
bound = bound + tonumber(ARGV[7])
local input_cost = math.ceil(bound * input_price / 1000)

local refused, at_once, granted, last = false, 0, false, false
local step = life[STEPS] + life[HELD + STEPS] + 1
if deadline and math.max(now - started, 0) >= deadline then
  refused = 0
end

-- Every ceiling, in order: what of it the call takes before its answer, in its unit; what each token of the answer takes, in thousandths;
-- what is left behind the former; and how much answer there is room for. Where the answer costs nothing the input alone must fit, and
-- what takes nothing always does.
for place, one in ipairs(ceilings) do
  local numbers = one.window == '' and life or stretch(one.window, tonumber(one.ended))
  local spent, held, need, rate
  if one.unit == 'steps' then
    spent, held, need, rate = numbers[STEPS], numbers[HELD + STEPS], steps, 0
  elseif one.unit == 'tokens' then
    spent, held = numbers[INPUT] + numbers[OUTPUT], numbers[HELD + INPUT] + numbers[HELD + OUTPUT]
    need, rate = bound, 1000
  elseif one.unit == 'cost' then
    spent, held, need, rate = numbers[COST], numbers[HELD + COST], input_cost, output_price
  elseif one.unit == 'input' then
    spent, held, need, rate = numbers[INPUT], numbers[HELD + INPUT], bound, 0
  else
    spent, held, need, rate = numbers[OUTPUT], numbers[HELD + OUTPUT], 0, 1000
  end
  local rest, fits = one.limit - spent - held - need, false
  if rate == 0 then
    fits = (rest >= 0 or need == 0) and wanted
  else
    local available = math.floor(rest * 1000 / rate)
    fits = available >= wanted and wanted or available >= modest and modest or available >= floor and available
  end
  if not fits or one.limit <= 0 then
    refused = refused or place
  elseif rate > 0 then
    granted = granted and math.min(granted, fits) or fits
  end
  one.spent, one.held, one.need, one.rate, one.rest = spent, held, need, rate, rest
end

-- Too many calls or sessions at once.
local most = tonumber(ARGV[20] or '')
if not refused and tonumber(ARGV[19] or '') and calls >= tonumber(ARGV[19]) then
  refused, at_once = -1, calls
elseif not refused and most then
  redis.call('ZREMRANGEBYSCORE', KEYS[3], '-inf', now)
  at_once = redis.call('ZCARD', KEYS[3])
  local there = redis.call('ZSCORE', KEYS[3], member)
  if most <= 0 or not there and at_once >= most then
    refused = -2
  end
  joined = joined or not there
end

local tags = {}
if calls > 0 and not member then
  local others = redis.call('ZRANGE', leases, 0, 4 * ARGV[18] - 1, 'REV') -- some may be those of other sessions' calls
  for i, other in ipairs(others) do
    others[i] = 'hold ' .. other
  end
  for _, hold in ipairs(redis.call('HMGET', ledger, unpack(others))) do
    local tag = hold and string.match(hold, '^%d+:%d+:%d+:%d+:([^:]+):') or nil
    if tag and #tags < tonumber(ARGV[18]) then
      tags[#tags + 1] = tag
    end
  end
end

local held_cost, told = 0, {}
if refused then
  granted = false
  for place, one in ipairs(ceilings) do
    told[place] = string.format('%d %d;', one.spent, one.held)
  end
else
  local output = granted or wanted
  held_cost = input_cost + math.ceil(output * output_price / 1000)
  local within = {}
  for place, one in ipairs(ceilings) do
    local taken = math.ceil(output * one.rate / 1000)
    if not last and one.rest - taken < one.need + math.ceil(floor * one.rate / 1000) then
      last = place
    end
    told[place] = string.format('%d %d;', one.spent, one.held + one.need + taken)
    if one.window ~= '' and not within[one.window] then
      within[one.window] = true
      within[#within + 1] = one.window
      add(stretch(one.window), HELD, steps, bound, output, held_cost)
    end
  end
  add(life, HELD, steps, bound, output, held_cost)
  local speaks = ''
  if most then
    redis.call('ZADD', KEYS[3], now + tonumber(ARGV[21]), member)
    speaks = (joined and '+' or '') .. member
  end
  redis.call('ZADD', leases, now + tonumber(ARGV[13]), lease)
  change('hold ' .. lease,
    string.format('%d:%d:%d:%d:%s:%s:%s', steps, bound, output, held_cost, ARGV[3], speaks, table.concat(within, '|')))
end

local ttl = tonumber(ARGV[1])
local text = store(changed, ttl, not stored[2])
if not refused then
  -- Leases never go before their time, whatever the ttl. A new key has no end that a later one could be compared with.
  local longest = math.max(ttl, math.ceil(1000 * ARGV[13]))
  if alone then
    redis.call('PEXPIRE', leases, longest)
  else
    redis.call('PEXPIRE', leases, longest, 'GT')
  end
  if most then
    redis.call('PEXPIRE', KEYS[3], math.max(ttl, math.ceil(1000 * ARGV[21])))
  end
end

return {stored[8], tonumber(stored[9] or 0), string.format('%.17g', now), string.format('%.17g', started), text,
  deadline and string.format('%.17g', deadline) or false, refused, at_once, last, step, granted, bound, held_cost, in_force, table.concat(told), tags,
  stored[7], stored[12]}
