#!lua
-- Load a session and reserve for one call. The arithmetic is the one of memory.py.
--
-- KEYS     1 session: hash of record, version, counters and tightened limits
--          2 leases: sorted set, lease by the time it expires (s)
--          3 holds: hash, lease -> "tokens:tag"
-- ARGV     1 ttl (ms)  2 lease  3 tag  4 body bytes  5 input bound (tokens)  6 attached (tokens)  7 output wanted  8 modest output
--          9 floor  10 the lease's life (s)  11-13 limits: steps, tokens, deadline (s), each "" for none  14-16 tightening: the same
--          three  17 how many tags of other leases to return at most
-- Returns  version, record, now, steps, input, output, reserved steps, reserved tokens, started,
--          effective limits (3), refused, step, granted output, last (0 or 1), tags of other live leases …
--          Times are strings; nil stands where there is no value.

local session, leases, holds = KEYS[1], KEYS[2], KEYS[3]
local ttl, lease, tag = tonumber(ARGV[1]), ARGV[2], ARGV[3]
local body_bytes, input_bound = tonumber(ARGV[4]), tonumber(ARGV[5])
local attached, wanted, modest, floor = tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9])

local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1e6

local stored = redis.call('HMGET', session, 'record', 'version', 'steps', 'input', 'output', 'reserved', 'started', 'ratio',
  'max_steps', 'max_tokens', 'max_deadline', 'known')
local steps, input, output = tonumber(stored[3]) or 0, tonumber(stored[4]) or 0, tonumber(stored[5]) or 0
local reserved, started, ratio = tonumber(stored[6]) or 0, tonumber(stored[7]) or now, tonumber(stored[8]) or 0

local function release(ended)
  local hold = redis.call('HGET', holds, ended)
  redis.call('ZREM', leases, ended)
  redis.call('HDEL', holds, ended)
  if hold then
    reserved = reserved - tonumber(string.match(hold, '^[^:]*'))
  end
end

for _, expired in ipairs(redis.call('ZRANGE', leases, '-inf', now, 'BYSCORE')) do
  release(expired)
end
if redis.call('ZSCORE', leases, lease) then
  release(lease)
end
local calls = redis.call('ZCARD', leases)
if calls == 0 then
  reserved = 0 -- also when the server evicted the leases: nothing stays reserved without one
end

local function lower(one, other)
  if one and other then
    return math.min(one, other)
  end
  return one or other
end

local max_steps = lower(tonumber(stored[9]), tonumber(ARGV[14]))
local max_tokens = lower(tonumber(stored[10]), tonumber(ARGV[15]))
local max_deadline = lower(tonumber(stored[11]), tonumber(ARGV[16]))
local limit_steps = lower(tonumber(ARGV[11]), max_steps)
local limit_tokens = lower(tonumber(ARGV[12]), max_tokens)
local limit_deadline = lower(tonumber(ARGV[13]), max_deadline)

local bound = input_bound
if ratio > 0 then
  local known = math.min(body_bytes, tonumber(stored[12]) or 0)
  bound = math.min(bound, math.ceil(known * ratio * 1.1) + body_bytes - known + 512)
end
bound = bound + attached

local refused, granted, last = false, false, false
local step, hold = steps + calls + 1, bound + wanted

if limit_deadline and math.max(now - started, 0) >= limit_deadline then
  refused = 'deadline'
elseif limit_steps and step > limit_steps then
  refused = 'steps'
elseif limit_tokens then
  local available = limit_tokens - input - output - reserved - bound
  if available >= wanted then
    granted = wanted
  elseif available >= modest then
    granted = modest
  elseif available >= floor then
    granted = available
  end
  if not granted or limit_tokens <= 0 then
    refused, granted = 'tokens', false
  else
    hold = bound + granted
    last = available - granted < bound + floor
  end
end
if not refused and limit_steps and step >= limit_steps then
  last = true
end

local tags = {}
local others = redis.call('ZRANGE', leases, 0, tonumber(ARGV[17]) - 1, 'REV')
if #others > 0 then
  for i, held in ipairs(redis.call('HMGET', holds, unpack(others))) do
    tags[i] = held and string.match(held, ':(.*)$') or '0'
  end
end

if not refused then
  calls, reserved = calls + 1, reserved + hold
  redis.call('ZADD', leases, now + tonumber(ARGV[10]), lease)
  redis.call('HSET', holds, lease, string.format('%.0f:%s', hold, tag))
end

local changed = {'started', started, 'reserved', reserved}
for name, value in pairs({max_steps = max_steps, max_tokens = max_tokens, max_deadline = max_deadline}) do
  changed[#changed + 1] = name
  changed[#changed + 1] = value
end
redis.call('HSET', session, unpack(changed))
-- A shorter ttl takes no life away, and what belongs to a session lives as long as it does.
local life = math.max(redis.call('PTTL', session), ttl)
for _, key in ipairs(KEYS) do
  redis.call('PEXPIRE', key, life)
end

local function exact(number)
  return number and string.format('%.17g', number)
end

return {tonumber(stored[2]) or 0, stored[1], exact(now), steps, input, output, calls, reserved, exact(started),
  limit_steps or false, limit_tokens or false, exact(limit_deadline) or false, refused, step, granted, last and 1 or 0, unpack(tags)}
