"""The bookings of `_books.Purse` and `_transactions` as one script that Redis runs alone.

A test runs the same drawn orders of calls through it and through the others.
"""

SCRIPT = r"""
local root, op, now = KEYS[1], ARGV[1], tonumber(ARGV[2])
if not now then
  local t = redis.call('TIME')
  now = tonumber(t[1]) + tonumber(t[2]) / 1e6
end
local FIELDS = {'total', 'spent', 'reserved', 'pending', 'n_expected', 'n_started', 'n_held',
  'n_open', 'n_committed', 'n_refunded', 'n_rejected', 'n_expired', 'period'}
local TERMS = {'t_total', 't_n_expected', 't_period', 't_rollover'}
local SLACK = 1 + 1e-12
local purses = {}

local function number_text(x)
  if not x then return '' end
  return string.format('%.17g', x)
end

local function period_number(period, at)
  if period == '' then return nil end
  if period ~= 'month' then
    local length = 86400
    if period ~= 'day' then length = tonumber(period) end
    return math.floor(at / length)
  end
  local z = math.floor(at / 86400) + 719468
  local era = math.floor(z / 146097)
  local doe = z - era * 146097
  local yoe = math.floor((doe - math.floor(doe / 1460) + math.floor(doe / 36524)
    - math.floor(doe / 146096)) / 365)
  local doy = doe - (365 * yoe + math.floor(yoe / 4) - math.floor(yoe / 100))
  local mp = math.floor((5 * doy + 2) / 153)
  local month = mp < 10 and mp + 3 or mp - 9
  local year = yoe + era * 400 + (month <= 2 and 1 or 0)
  return 12 * year + month - 1
end

local function begin(p, total, number)
  p.total, p.spent, p.period, p.n_expected = total, 0, number, tonumber(p.t_n_expected)
  p.n_started, p.n_committed, p.n_refunded, p.n_rejected = p.n_held, 0, 0, 0
end

local function purse(name)
  local p = purses[name]
  if p then return p end
  local v = redis.call('HMGET', root .. ':purse:' .. name, unpack(FIELDS))
  if not v[1] then error('no purse ' .. name) end
  p = {}
  for i, field in ipairs(FIELDS) do p[field] = tonumber(v[i]) end
  if p.period then
    local t = redis.call('HMGET', root .. ':purse:' .. name, unpack(TERMS))
    for i, field in ipairs(TERMS) do p[field] = t[i] end
    local number = period_number(p.t_period, now)
    if number > p.period then
      local rolls = p.t_rollover == '1'
      local carried = rolls and p.total - p.spent or 0
      begin(p, carried + (rolls and number - p.period or 1) * tonumber(p.t_total), number)
    end
  end
  purses[name] = p
  return p
end

local function texts(p)
  local out = {}
  for i, field in ipairs(FIELDS) do out[i] = number_text(p[field]) end
  return out
end

local function save()
  for name, p in pairs(purses) do
    local set = {}
    for i, text in ipairs(texts(p)) do
      set[2 * i - 1], set[2 * i] = FIELDS[i], text
    end
    redis.call('HSET', root .. ':purse:' .. name, unpack(set))
  end
end

local function names(joined)
  local out = {}
  for name in string.gmatch(joined, '[^\31]+') do out[#out + 1] = name end
  return out
end

local function room(p) return p.total * SLACK - p.spent - p.reserved end

local function give_back(p, amount)
  p.reserved = (p.n_open > 0 or p.n_held > 0) and p.reserved - amount or 0
end

local function close(p, r)
  p.n_open = p.n_open - 1
  p.pending = p.n_open > 0 and p.pending - r.pending or 0
  give_back(p, r.amount)
end

local function record(number)
  local v = redis.call('HMGET', root .. ':r:' .. number, 'state', 'purses', 'amount', 'pending',
    'deciding', 'offer', 'key')
  if not v[1] then return nil end
  return {number = number, state = v[1], purses = names(v[2]), amount = tonumber(v[3]),
    pending = tonumber(v[4]), deciding = tonumber(v[5]), offer = v[6], key = v[7]}
end

local function key_of(r) return root .. ':key:' .. r.purses[1] .. '\31' .. r.key end

local function erase(r)
  redis.call('DEL', root .. ':r:' .. r.number)
  redis.call('ZREM', root .. ':due', r.number)
  if r.state == 'expired' then redis.call('SREM', root .. ':expired', r.number) end
  if r.key ~= '' then redis.call('DEL', key_of(r)) end
end

local function release(r)
  for i, name in ipairs(r.purses) do
    local p = purse(name)
    p.n_held = p.n_held - 1
    give_back(p, r.amount)
    if i == 1 then p.n_started = p.n_started - 1 end
  end
  erase(r)
end

local function insert(joined, state, amount, pending, deciding, offer, key, timeout)
  local number = redis.call('INCR', root .. ':issued')
  redis.call('HSET', root .. ':r:' .. number, 'state', state, 'purses', joined, 'amount', amount,
    'pending', pending, 'deciding', deciding, 'offer', offer, 'key', key)
  local due = timeout == '' and '+inf' or number_text(now + tonumber(timeout))
  redis.call('ZADD', root .. ':due', due, number)
  if key ~= '' then redis.call('SET', root .. ':key:' .. names(joined)[1] .. '\31' .. key, number) end
  return number
end

local function known(own, key)
  if key == '' then return nil end
  local number = redis.call('GET', root .. ':key:' .. own .. '\31' .. key)
  if not number then return nil end
  local r = record(number)
  if r.state == 'expired' then
    redis.call('DEL', key_of(r))
    redis.call('HSET', root .. ':r:' .. number, 'key', '')
    return nil
  end
  return r
end

local function answer(status, own, list, number, offer)
  local least = math.huge
  for _, name in ipairs(list) do least = math.min(least, room(purse(name))) end
  save()
  return {status, table.concat(texts(purse(own)), ' '), number_text(least), number or '',
    offer or ''}
end

local due = redis.call('ZRANGEBYSCORE', root .. ':due', '-inf', number_text(now), 'LIMIT', 0, 100)
for _, number in ipairs(due) do
  local r = record(number)
  if r.state == 'held' then
    release(r)
  elseif r.state == 'open' then
    for _, name in ipairs(r.purses) do
      local p = purse(name)
      close(p, r)
      p.spent = p.spent + r.deciding
      p.n_expired = p.n_expired + 1
    end
    redis.call('HSET', root .. ':r:' .. number, 'state', 'expired')
    redis.call('ZREM', root .. ':due', number)
    redis.call('SADD', root .. ':expired', number)
  else
    erase(r)
  end
end

if op == 'open' then
  local name, total, n_expected, period, rollover = ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7]
  local hash = root .. ':purse:' .. name
  if redis.call('EXISTS', hash) == 0 then
    redis.call('HSET', hash, 't_total', total, 't_n_expected', n_expected, 't_period', period,
      't_rollover', rollover, 'total', total, 'spent', 0, 'reserved', 0, 'pending', 0,
      'n_expected', n_expected, 'n_started', 0, 'n_held', 0, 'n_open', 0, 'n_committed', 0,
      'n_refunded', 0, 'n_rejected', 0, 'n_expired', 0,
      'period', number_text(period_number(period, now)))
  end
  save()
  return redis.call('HMGET', hash, unpack(TERMS))
end

local own, joined = ARGV[3], ARGV[4]
local list = names(joined)

if op == 'hold' then
  local amount, key, timeout = tonumber(ARGV[5]), ARGV[6], ARGV[7]
  local r = known(own, key)
  if r then return answer(r.state, own, list, r.number, r.offer) end
  for i, name in ipairs(list) do
    if amount > room(purse(name)) then
      purse(own).n_rejected = purse(own).n_rejected + 1
      return answer('full', own, list, i)
    end
  end
  purse(own).n_started = purse(own).n_started + 1
  for _, name in ipairs(list) do
    local p = purse(name)
    p.reserved, p.n_held = p.reserved + amount, p.n_held + 1
  end
  local number = insert(joined, 'held', ARGV[5], '0', '0', '', '', timeout)
  return answer('held', own, list, number)

elseif op == 'release' then
  local r = record(ARGV[5])
  if r and r.state == 'held' then release(r) end
  return answer('released', own, list)

elseif op == 'reserve' then
  local held, key, timeout = ARGV[5], ARGV[6], ARGV[7]
  local least, keep = tonumber(ARGV[8]), tonumber(ARGV[9])
  local offer, amount = ARGV[10], tonumber(ARGV[11])
  local r = known(own, key)
  local h = held ~= '' and record(held) or nil
  if h and h.state ~= 'held' then h = nil end
  if r then
    if h then release(h) end
    return answer(r.state, own, list, r.number, r.offer)
  end
  local p, fits, smallest, full = purse(own), true, math.huge, 1
  for i, name in ipairs(list) do
    local this = room(purse(name)) + (h and h.amount or 0)
    if this < smallest then smallest, full = this, i end
  end
  if h then smallest = math.max(smallest, h.amount) end
  if not amount then
    if h then release(h) end
    p.n_rejected = p.n_rejected + 1
    return answer('full', own, list, full)
  end
  if amount > least then
    local started = p.n_started + (h and 0 or 1)
    local spare = smallest
    if p.n_expected then spare = spare - keep * math.max(p.n_expected - started, 0) end
    fits = amount <= spare
  else
    fits = amount <= smallest
  end
  if not fits then return answer('stale', own, list) end
  if h then release(h) end
  p.n_started = p.n_started + 1
  local pending = tonumber(ARGV[12])
  for _, name in ipairs(list) do
    local q = purse(name)
    q.reserved, q.pending, q.n_open = q.reserved + amount, q.pending + pending, q.n_open + 1
  end
  local number = insert(joined, 'open', ARGV[11], ARGV[12], ARGV[13], offer, key, timeout)
  return answer('open', own, list, number, offer)

elseif op == 'settle' then
  local number, offer, cost, token, remember = ARGV[5], ARGV[6], ARGV[7], ARGV[8], ARGV[9]
  local over, late = -math.huge, '0'
  local r = record(number)
  if r and (r.state == 'open' or r.state == 'expired') and r.offer == offer
      and r.purses[1] == own then
    late = r.state == 'expired' and '1' or '0'
    for _, name in ipairs(r.purses) do
      local p = purse(name)
      local charge = r.deciding + (tonumber(cost) or 0)
      if late == '1' then
        charge = charge - r.deciding
        p.n_expired = p.n_expired - 1
      else
        close(p, r)
      end
      p.spent = p.spent + charge
      if cost == '' then p.n_refunded = p.n_refunded + 1
      else p.n_committed = p.n_committed + 1 end
      over = math.max(over, p.spent - p.total)
    end
    if r.key == '' or cost == '' then
      erase(r)
    else
      if late == '1' then redis.call('SREM', root .. ':expired', number) end
      redis.call('HSET', root .. ':r:' .. number, 'state', 'committed')
      redis.call('ZADD', root .. ':due', remember == '' and '+inf'
        or number_text(now + tonumber(remember)), number)
    end
    redis.call('SET', root .. ':done:' .. number, token .. ' ' .. number_text(over) .. ' ' .. late,
      'EX', 120)
    return answer('settled', own, list, number_text(over), late)
  end
  -- Sent again, after a connection broke before the answer came.
  local done = redis.call('GET', root .. ':done:' .. number)
  if done and string.sub(done, 1, #token + 1) == token .. ' ' then
    local before, was = string.match(done, ' (%S+) (%S+)$')
    return answer('settled', own, list, before, was)
  end
  return answer('not open', own, list)

elseif op == 'books' then
  return answer('books', own, list)

elseif op == 'top_up' then
  local p = purse(own)
  p.total = p.total + tonumber(ARGV[5])
  if p.n_expected then p.n_expected = p.n_expected + tonumber(ARGV[6]) end
  return answer('books', own, list)

elseif op == 'reset' then
  local p = purse(own)
  local t = redis.call('HMGET', root .. ':purse:' .. own, unpack(TERMS))
  for i, field in ipairs(TERMS) do p[field] = t[i] end
  begin(p, tonumber(p.t_total), p.period)
  return answer('books', own, list)

elseif op == 'unsettled' then
  purse(own)
  local out = {}
  local every = redis.call('ZRANGE', root .. ':due', 0, -1)
  for _, number in ipairs(redis.call('SMEMBERS', root .. ':expired')) do
    every[#every + 1] = number
  end
  for _, number in ipairs(every) do
    local r = record(number)
    if r.purses[1] == own and (r.state == 'open' or r.state == 'expired') then
      local score = redis.call('ZSCORE', root .. ':due', number)
      out[#out + 1] = {number, table.concat(r.purses, '\31'), r.state, r.offer, score or '', r.key}
    end
  end
  save()
  return out
end
"""
