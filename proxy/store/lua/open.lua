-- Load a session and reserve for one call. Behind ledger.lua; the arithmetic is the one of book.py.
--
-- KEYS     see ledger.lua
-- ARGV     1 ttl (ms)  2 lease  3 tag  4 steps  5 body bytes  6 input bound (tokens)  7 attached (tokens)  8 output wanted  9 modest output
--          10 floor  11, 12 prices of input and output (pico-dollars per token)  13 the lease's life (s)  14 ceilings  15 deadline (s)
--          16, 17 tightening: ceilings, deadline  18 how many tags of other leases to return at most
--          Ceilings are "unit|limit|end|window;" each; a deadline or end is "" for none.
-- Returns  version, record, now, started, counters (8), deadline, refused, last, step, granted output,
--          standings (place in the ceilings asked with or 0, unit, limit, end, window, spent, held), tags of other live leases.
--          refused: 0 for the deadline, else the standing's place, nil for none; last: a standing's place or nil. Times are strings.

local lease, tag, steps, body_bytes = ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local wanted, modest, floor = tonumber(ARGV[8]), tonumber(ARGV[9]), tonumber(ARGV[10])
local input_price, output_price = tonumber(ARGV[11]), tonumber(ARGV[12])

local record, version, started, ratio, known, tightened, tightened_deadline =
  load('record', 'version', 'started', 'ratio', 'known', 'tightened', 'tightened_deadline')
local changed = {}
if not started then
  started = exact(now)
  changed = {'started', started}
end
started = tonumber(started)

for _, expired in ipairs(redis.call('ZRANGE', leases, '-inf', now, 'BYSCORE')) do
  release(expired)
end
if redis.call('ZSCORE', leases, lease) then
  release(lease)
end
calls_under_way()

local UNITS = {'steps', 'input', 'output', 'tokens', 'cost'}

local function parsed(text)
  local list = {}
  for unit, limit, ended, window in string.gmatch(text or '', '(%a+)|(%-?%d+)|([^|]*)|([^;]*);') do
    list[#list + 1] = {place = #list + 1, unit = unit, limit = tonumber(limit), ended = ended, window = window}
  end
  return list
end

local function text_of(list)
  local parts = {}
  for i, one in ipairs(list) do
    parts[i] = string.format('%s|%.0f|%s|%s;', one.unit, one.limit, one.ended, one.window)
  end
  return table.concat(parts)
end

-- The stricter of two lists, ceiling by ceiling, in the order of units.
local function lower(list, by)
  if #by == 0 then
    return list
  end
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
      one.place = 0
      list[#list + 1] = one
    end
  end
  local ordered = {}
  for _, unit in ipairs(UNITS) do
    for _, one in ipairs(list) do
      if one.unit == unit then
        ordered[#ordered + 1] = one
      end
    end
  end
  return ordered
end

local function least(one, other)
  one, other = tonumber(one or ''), tonumber(other or '')
  return one and other and math.min(one, other) or one or other
end

local stricter = ARGV[16] == '' and tightened or text_of(lower(parsed(tightened), parsed(ARGV[16])))
if stricter ~= tightened then
  changed[#changed + 1] = 'tightened'
  changed[#changed + 1] = stricter
end
if ARGV[17] ~= '' then
  tightened_deadline = exact(least(tightened_deadline, ARGV[17]))
  changed[#changed + 1] = 'tightened_deadline'
  changed[#changed + 1] = tightened_deadline
end
local ceilings = lower(parsed(ARGV[14]), parsed(stricter))
local deadline = least(ARGV[15], tightened_deadline)

local bound = tonumber(ARGV[6])
ratio = tonumber(ratio) or 0
if ratio > 0 then
  known = math.min(body_bytes, tonumber(known))
  bound = math.min(bound, math.ceil(known * ratio * 1.1) + body_bytes - known + 512)
end
bound = bound + tonumber(ARGV[7])

local function priced(tokens, rate)
  return math.ceil(tokens * rate / 1000)
end

-- What a call takes of a ceiling before its answer, in the ceiling's unit, and what each token of the answer takes, in thousandths.
local DEMAND = {
  steps = {steps, 0},
  input = {bound, 0},
  output = {0, 1000},
  tokens = {bound, 1000},
  cost = {priced(bound, input_price), output_price},
}

-- Spent and held, in that unit.
local function used(one)
  local counters = stretch(one.window, tonumber(one.ended))
  if one.unit == 'tokens' then
    return counters[INPUT] + counters[OUTPUT], counters[HELD + INPUT] + counters[HELD + OUTPUT]
  end
  local place = one.unit == 'steps' and STEPS or one.unit == 'input' and INPUT or one.unit == 'output' and OUTPUT or COST
  return counters[place], counters[HELD + place]
end

-- The output tokens to grant of those available; nil when they are too few for a useful answer.
local function fitting(available)
  return available >= wanted and wanted or available >= modest and modest or available >= floor and available or nil
end

local refused, granted, last = false, false, false
local step = life[STEPS] + life[HELD + STEPS] + 1

if deadline and math.max(now - started, 0) >= deadline then
  refused = 0
else
  for place, one in ipairs(ceilings) do
    local spent, held = used(one)
    local need, rate = unpack(DEMAND[one.unit])
    one.rest = one.limit - spent - held - need
    local fits
    if rate > 0 then
      fits = fitting(math.floor(one.rest * 1000 / rate))
    else
      fits = (one.rest >= 0 or need == 0) and 0
    end
    if not fits or one.limit <= 0 then
      refused, granted = place, false
      break
    end
    if rate > 0 then
      granted = granted and math.min(granted, fits) or fits
    end
  end
end

local tags = {}
local others = redis.call('ZRANGE', leases, 0, tonumber(ARGV[18]) - 1, 'REV')
if #others > 0 then
  for i, hold in ipairs(redis.call('HMGET', holds, unpack(others))) do
    tags[i] = hold and string.match(hold, '^%d+:%d+:%d+:%d+:([^:]*):') or '0'
  end
end

if not refused then
  local output = granted or wanted
  for place, one in ipairs(ceilings) do
    local need, rate = unpack(DEMAND[one.unit])
    if one.rest - priced(output, rate) < need + priced(floor, rate) then
      last = place
      break
    end
  end
  local cost = priced(bound, input_price) + priced(output, output_price)
  local within, seen = {}, {}
  add(life, HELD, steps, bound, output, cost)
  for _, one in ipairs(ceilings) do
    if one.window ~= '' and not seen[one.window] then
      seen[one.window] = true
      within[#within + 1] = one.window
      add(stretch(one.window), HELD, steps, bound, output, cost)
    end
  end
  redis.call('ZADD', leases, now + tonumber(ARGV[13]), lease)
  local hold = string.format('%.0f:%.0f:%.0f:%.0f:%s:', steps, bound, output, cost, tag)
  redis.call('HSET', holds, lease, hold .. table.concat(within, '|'))
end

local standings = {}
for i, one in ipairs(ceilings) do
  local spent, held = used(one)
  standings[i] = {one.place, one.unit, one.limit, one.ended, one.window, spent, held}
end
store(changed, tonumber(ARGV[1]))

return {tonumber(version) or 0, record, exact(now), exact(started), life, exact(deadline) or false, refused, last, step, granted, standings,
  tags}
