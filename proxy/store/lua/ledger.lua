#!lua
-- What every script on a ledger begins with: its counters, its windows, its leases. The arithmetic is the one of book.py.
--
-- KEYS     1 ledger: hash of the record, its version, the counters and limits that stay
--          2 leases: sorted set, lease by the time it expires (s)
--          3 holds: hash, lease -> "steps:input:output:cost:tag:window|window…"
--
-- Counters are fields named as in COUNTERS, those of a window behind its name and a space. The field `windows` lists every window that has
-- counters, "end|name;" each, the end in epoch seconds.

local ledger, leases, holds = KEYS[1], KEYS[2], KEYS[3]
local COUNTERS = {'steps', 'input', 'output', 'cost', 'held_steps', 'held_input', 'held_output', 'held_cost'}
local STEPS, INPUT, OUTPUT, COST, HELD = 1, 2, 3, 4, 4 -- places in a stretch; what is held stands HELD places on
local WINDOW_SECONDS = 3600 -- how long a window's counters stay after its end, for those who look

local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1e6

local function exact(number)
  return number and string.format('%.17g', number)
end

local life, windows, ends, windows_changed, idle = {}, {}, {}, false, false

-- Read the counters of the whole life, and further fields of the ledger, in one command. Returns the values of those.
local function load(...)
  local fields = {'windows', ...}
  local first = #fields
  for place, name in ipairs(COUNTERS) do
    fields[first + place] = name
  end
  local stored = redis.call('HMGET', ledger, unpack(fields))
  for place = 1, #COUNTERS do
    life[place] = tonumber(stored[first + place]) or 0
  end
  if stored[1] then
    for ended, name in string.gmatch(stored[1], '([^|]*)|([^;]*);') do
      ends[name] = tonumber(ended)
    end
  end
  return unpack(stored, 2, first)
end

local function counters_of(window)
  local fields = {}
  for place, name in ipairs(COUNTERS) do
    fields[place] = window .. ' ' .. name
  end
  return fields
end

-- The counters of a window. One that is new makes room: those long over go. Of an unknown end, it is over now.
local function stretch(window, ended)
  if window == '' then
    return life
  end
  if not ends[window] then
    for old, at in pairs(ends) do
      if at + WINDOW_SECONDS <= now then
        redis.call('HDEL', ledger, unpack(counters_of(old)))
        ends[old], windows[old] = nil, nil
      end
    end
    ends[window], windows_changed = ended or now, true
  elseif ended and ended ~= ends[window] then
    ends[window], windows_changed = ended, true
  end
  local found = windows[window]
  if not found then
    found = redis.call('HMGET', ledger, unpack(counters_of(window)))
    for place = 1, #COUNTERS do
      found[place] = not (idle and place > HELD) and tonumber(found[place]) or 0
    end
    windows[window] = found
  end
  return found
end

local function add(counters, first, steps, input, output, cost)
  counters[first + STEPS] = counters[first + STEPS] + steps
  counters[first + INPUT] = counters[first + INPUT] + input
  counters[first + OUTPUT] = counters[first + OUTPUT] + output
  counters[first + COST] = counters[first + COST] + cost
end

-- End a lease, if it lives, and give back what it held.
local function release(lease)
  local hold = redis.call('HGET', holds, lease)
  redis.call('ZREM', leases, lease)
  if hold then
    redis.call('HDEL', holds, lease)
    local steps, input, output, cost, within = string.match(hold, '^(%d+):(%d+):(%d+):(%d+):[^:]*:(.*)$')
    add(life, HELD, -steps, -input, -output, -cost)
    for window in string.gmatch(within, '[^|]+') do
      if ends[window] then
        add(stretch(window), HELD, -steps, -input, -output, -cost)
      end
    end
  end
end

-- How many calls are under way. None: nothing is held, also when the server evicted the leases.
local function calls_under_way()
  local calls = redis.call('ZCARD', leases)
  if calls == 0 then
    idle = true
    for _, counters in pairs(windows) do
      for place = HELD + 1, #COUNTERS do
        counters[place] = 0
      end
    end
    for place = HELD + 1, #COUNTERS do
      life[place] = 0
    end
  end
  return calls
end

-- Write the counters back, beside the fields in `changed` (name, value, name, value, …), and keep all that belongs to the ledger as long as
-- the ledger, at least `ttl` (ms) from now. A shorter ttl takes no life away.
local function store(changed, ttl)
  for place, name in ipairs(COUNTERS) do
    changed[#changed + 1] = name
    changed[#changed + 1] = life[place]
  end
  for window, counters in pairs(windows) do
    for place, name in ipairs(counters_of(window)) do
      changed[#changed + 1] = name
      changed[#changed + 1] = counters[place]
    end
  end
  if windows_changed then
    local list = {}
    for window, ended in pairs(ends) do
      list[#list + 1] = exact(ended) .. '|' .. window .. ';'
    end
    changed[#changed + 1] = 'windows'
    changed[#changed + 1] = table.concat(list)
  end
  redis.call('HSET', ledger, unpack(changed))
  local left = math.max(redis.call('PTTL', ledger), ttl)
  for _, key in ipairs({ledger, leases, holds}) do
    redis.call('PEXPIRE', key, left)
  end
end
