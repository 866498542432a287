#!lua
-- What every script on a ledger begins with: its counters, its windows, its leases. The arithmetic is the one of book.py.
--
-- KEYS     1 ledger: hash, see below
--          2 leases: sorted set, lease by the time it expires (s)
--
-- Fields of the ledger: `life`, the counters of its whole life, "steps input output cost", settled, and the same four again, held; `in
-- <window>`, those of a window, and its end (s) behind them; `hold <lease>`, what a call under way holds:
-- "steps:input:output:cost:tag:member:window|window…", without a tag where the ledger pays for another session's call, the member being
-- the session that counts as being there, behind a "+" if that lease brought it; the record and its version; `started` (s); `ratio` and
-- `known`, what the session's bodies taught; `ceilings` and `deadline`, with which the session was last opened; `tightened` and
-- `tightened_deadline`, what its headers asked for; `stop`, the reason its run stands stopped for; `fallen`, "session reason" of the
-- descendant that was stopped last; `amended`, what an operator changed, see limits.lua; `listed`, when the index last heard of it (s).

local ledger, leases = KEYS[1], KEYS[2]
local STEPS, INPUT, OUTPUT, COST, HELD = 1, 2, 3, 4, 4 -- places among counters; what is held stands HELD places on
local WINDOW_SECONDS = 3600 -- how long a window's counters stay after its end, for those who look
local LARGEST = 2 ^ 60 -- of a counter: sums of some of them can still be written
local HOLD = '^(%d+):(%d+):(%d+):(%d+):([^:]*):([^:]*):(.*)$'

local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1e6

local life -- the script that follows reads it first
local windows, idle = {}, false

local function counters(text)
  if not text then
    return {0, 0, 0, 0, 0, 0, 0, 0}
  end
  local a, b, c, d, e, f, g, h, ended = string.match(text, '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) ?(.*)$')
  return {a + 0, b + 0, c + 0, d + 0, e + 0, f + 0, g + 0, h + 0, ended = tonumber(ended)}
end

local function text_of(numbers)
  local text = string.format('%d %d %d %d %d %d %d %d', unpack(numbers))
  if string.find(text, '-', 1, true) then -- one is too large to be written, or was too large to be counted exactly
    for place = 1, 2 * HELD do
      numbers[place] = math.max(math.min(numbers[place], LARGEST), 0)
    end
    text = string.format('%d %d %d %d %d %d %d %d', unpack(numbers))
  end
  return text
end

local function hold_nothing(numbers)
  for place = HELD + 1, 2 * HELD do
    numbers[place] = 0
  end
end

-- The counters of a window, nil if it has none.
local function known(window)
  local found = windows[window]
  if not found then
    local text = redis.call('HGET', ledger, 'in ' .. window)
    if not text then
      return nil
    end
    found = counters(text)
    windows[window] = found
    if idle then
      hold_nothing(found)
    end
  end
  return found
end

-- The counters of a window. One that is new makes room: those long over go. Of an unknown end, it is over now.
local function stretch(window, ended)
  if window == '' then
    return life
  end
  local found = known(window)
  if not found then
    for _, field in ipairs(redis.call('HKEYS', ledger)) do
      if string.sub(field, 1, 3) == 'in ' and counters(redis.call('HGET', ledger, field)).ended + WINDOW_SECONDS <= now then
        redis.call('HDEL', ledger, field)
        windows[string.sub(field, 4)] = nil
      end
    end
    found = counters()
    found.ended = now
    windows[window] = found
  end
  found.ended = ended or found.ended
  return found
end

local function add(numbers, first, steps, input, output, cost)
  numbers[first + STEPS] = numbers[first + STEPS] + steps
  numbers[first + INPUT] = numbers[first + INPUT] + input
  numbers[first + OUTPUT] = numbers[first + OUTPUT] + output
  numbers[first + COST] = numbers[first + COST] + cost
end

-- Give back what a lease holds. Returns the member it speaks for.
local function give_back(hold)
  local steps, input, output, cost, _, member, within = string.match(hold or '', HOLD)
  if not steps then
    return ''
  end
  add(life, HELD, -steps, -input, -output, -cost)
  for window in string.gmatch(within, '[^|]+') do
    local numbers = known(window)
    if numbers then
      add(numbers, HELD, -steps, -input, -output, -cost)
    end
  end
  return member
end

-- End a lease, if it lives. Returns the member it spoke for.
local function release(lease)
  local hold = redis.call('HGET', ledger, 'hold ' .. lease)
  if not hold then
    return ''
  end
  redis.call('ZREM', leases, lease)
  redis.call('HDEL', ledger, 'hold ' .. lease)
  return give_back(hold)
end

-- Write back the counters, beside the fields in `changed` (name, value, name, value, …), and keep the ledger for at least `ttl` (ms) from
-- now. A shorter ttl takes no life away.
local function store(changed, ttl, new)
  local last = #changed
  changed[last + 1], changed[last + 2] = 'life', text_of(life)
  for window, numbers in pairs(windows) do
    last = last + 2
    changed[last + 1], changed[last + 2] = 'in ' .. window, text_of(numbers) .. string.format(' %.17g', numbers.ended)
  end
  redis.call('HSET', ledger, unpack(changed))
  if new then
    redis.call('PEXPIRE', ledger, ttl)
  else
    redis.call('PEXPIRE', ledger, ttl, 'GT')
  end
end
