-- What is in force in a ledger, and how much of it is used. Behind ledger.lua.
--
-- Ceilings are text, "unit|limit|end|window;" each; no end or deadline is "". What an operator changed is the field `amended`:
-- "mark|deadline|note in hex|ceilings".

local function parsed(text)
  local list = {}
  for unit, limit, ended, window in string.gmatch(text, '(%a+)|(%-?%d+)|([^|]*)|([^;]*);') do
    list[#list + 1] = {unit = unit, limit = limit + 0, ended = ended, window = window, spent = 0, held = 0, need = 0, rate = 0, rest = 0}
  end
  return list
end

local function written(list)
  local parts = {}
  for i, one in ipairs(list) do
    parts[i] = string.format('%s|%d|%s|%s;', one.unit, one.limit, one.ended, one.window)
  end
  return table.concat(parts)
end

-- Two lists as one, in the order of units: of ceilings of one unit and window the stricter, or that of the second instead.
local function merged(list, by, instead)
  for _, one in ipairs(by) do
    local other
    for _, candidate in ipairs(list) do
      if candidate.unit == one.unit and candidate.window == one.window then
        other = candidate
      end
    end
    if other then
      other.limit = instead and one.limit or math.min(other.limit, one.limit)
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

-- Those whose stretch of the calendar is not over: last month's raised limit says nothing about this one.
local function lasting(list)
  local left = {}
  for _, one in ipairs(list) do
    if one.ended == '' or tonumber(one.ended) > now then
      left[#left + 1] = one
    end
  end
  return left
end

local function parts_of(amended)
  return string.match(amended or '|||', '^([^|]*)|([^|]*)|([^|]*)|(.*)$')
end

-- The ceilings and the deadline in force, with what headers tightened and an operator raised; then the text of the ceilings, false if they
-- are the ones asked with; then the operator's mark.
local function in_force(limits, deadline, tightened, tightened_deadline, amended)
  local ceilings, changed, mark = parsed(limits), false, ''
  deadline = tonumber(deadline)
  if tightened then
    ceilings, changed = merged(ceilings, parsed(tightened)), true
  end
  if tightened_deadline then
    deadline = math.min(deadline or tightened_deadline, tightened_deadline)
  end
  if amended then
    local at, _, raised
    mark, at, _, raised = parts_of(amended)
    deadline = tonumber(at) or deadline
    if raised ~= '' then
      ceilings, changed = merged(ceilings, lasting(parsed(raised)), true), true
    end
  end
  return ceilings, deadline, changed and written(ceilings), mark
end

-- Spent and held, in that unit.
local function used(unit, numbers)
  if unit == 'steps' then
    return numbers[STEPS], numbers[HELD + STEPS]
  elseif unit == 'tokens' then
    return numbers[INPUT] + numbers[OUTPUT], numbers[HELD + INPUT] + numbers[HELD + OUTPUT]
  elseif unit == 'cost' then
    return numbers[COST], numbers[HELD + COST]
  elseif unit == 'input' then
    return numbers[INPUT], numbers[HELD + INPUT]
  end
  return numbers[OUTPUT], numbers[HELD + OUTPUT]
end
