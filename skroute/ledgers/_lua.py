"""The bookings of `_books.Purse` and `_transactions` as one script that Redis runs alone.

A purse is one string of float64 (books, terms, when deadlines were last looked at, how many
reservations were issued; NaN is None), a reservation one of MessagePack. A test runs the same
drawn orders of calls through this script and through the other ledgers.
"""

SCRIPT = r"""
local root, op, now, own, joined = KEYS[1], ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4]
if not now then
  local t = redis.call('TIME')
  now = tonumber(t[1]) + tonumber(t[2]) / 1e6
end
local call, max, nan, format = redis.call, math.max, 0 / 0, '<ddddddddddddddddddd'
local SLACK, SWEEP = 1 + 1e-12, 0.05

-- What nearly every call is, without a table or function made: one purse without periods, no
-- key, nothing held, deadlines looked at lately. All else goes on below, where the same is said
-- of several purses.
if (op == 'reserve' and ARGV[5] == '' and ARGV[6] == '' and ARGV[11] ~= '' or op == 'settle')
    and own == joined then
  local text = call('GET', root .. ':purse:' .. own)
  if text then
    local total, spent, reserved, pending, n_expected, n_started, n_held, n_open, n_committed,
      n_refunded, n_rejected, n_expired, period, t_total, t_n_expected, t_period, t_rollover,
      swept, issued = struct.unpack(format, text)
    local status, number, said
    if period == period or now - swept >= SWEEP or now < swept then
      -- Below.
    elseif op == 'reserve' then
      local amount, expected = tonumber(ARGV[11]), tonumber(ARGV[12])
      local spare = total * SLACK - spent - reserved
      if amount > tonumber(ARGV[8]) and n_expected == n_expected then
        spare = spare - tonumber(ARGV[9]) * max(n_expected - n_started - 1, 0)
      end
      if amount <= spare then
        n_started, reserved, pending = n_started + 1, reserved + amount, pending + expected
        n_open, issued = n_open + 1, issued + 1
        status, number, said = 'open', string.format('%d', issued), ''
        local id = own .. '\31' .. number
        call('SET', root .. ':r:' .. id, cmsgpack.pack({'open', own, amount, expected,
          tonumber(ARGV[13]), ARGV[10], ''}))
        local timeout = ARGV[7] ~= '' and string.format('%.17g', now + ARGV[7]) or '+inf'
        call('ZADD', root .. ':due', timeout, id)
      end
    else
      local id = own .. '\31' .. ARGV[5]
      local found = call('GET', root .. ':r:' .. id)
      local r = found and cmsgpack.unpack(found)
      if r and r[1] == 'open' and r[2] == own and r[6] == ARGV[6] and r[7] == '' then
        local cost = tonumber(ARGV[7])
        n_open = n_open - 1
        pending = n_open > 0 and pending - r[4] or 0
        reserved = (n_open > 0 or n_held > 0) and reserved - r[3] or 0
        spent = spent + (r[5] + (cost or 0))
        if cost then n_committed = n_committed + 1 else n_refunded = n_refunded + 1 end
        status, number, said = 'settled', '', struct.pack('<dd', spent - total, 0)
        call('ZREM', root .. ':due', id)
        -- Remembered for a while, as below.
        call('SET', root .. ':r:' .. id, cmsgpack.pack({'done', own, 0, 0, 0, '', '', ARGV[8],
          spent - total, '0'}), 'EX', 120)
      end
    end
    if status then
      text = struct.pack(format, total, spent, reserved, pending, n_expected, n_started, n_held,
        n_open, n_committed, n_refunded, n_rejected, n_expired, period, t_total, t_n_expected,
        t_period, t_rollover, swept, issued)
      call('SET', root .. ':purse:' .. own, text)
      return {status, text, struct.pack('<d', total * SLACK - spent - reserved), number, said}
    end
  end
end

local purses = {}

local function none(x) return x ~= x end

local function period_number(period)
  if none(period) then return nan end
  if period > 0 then return math.floor(now / period) end
  if period == -1 then return math.floor(now / 86400) end
  -- The civil month of a day, by years that begin in March.
  local z = math.floor(now / 86400) + 719468
  local era = math.floor(z / 146097)
  local doe = z - era * 146097
  local yoe = math.floor((doe - math.floor(doe / 1460) + math.floor(doe / 36524)
    - math.floor(doe / 146096)) / 365)
  local doy = doe - (365 * yoe + math.floor(yoe / 4) - math.floor(yoe / 100))
  local mp = math.floor((5 * doy + 2) / 153)
  local month = mp < 10 and mp + 3 or mp - 9
  return 12 * (yoe + era * 400 + (month <= 2 and 1 or 0)) + month - 1
end

local function begin(p, total, number)
  p.total, p.spent, p.period, p.n_expected = total, 0, number, p.t_n_expected
  p.n_started, p.n_committed, p.n_refunded, p.n_rejected = p.n_held, 0, 0, 0
end

local function purse(name)
  local p = purses[name]
  if p then return p end
  local text = call('GET', root .. ':purse:' .. name)
  if not text then error('no purse ' .. name) end
  p = {}
  p.total, p.spent, p.reserved, p.pending, p.n_expected, p.n_started, p.n_held, p.n_open,
    p.n_committed, p.n_refunded, p.n_rejected, p.n_expired, p.period, p.t_total, p.t_n_expected,
    p.t_period, p.t_rollover, p.swept, p.issued = struct.unpack(format, text)
  p.text = text
  if not none(p.period) then
    local number = period_number(p.t_period)
    if number > p.period then
      local rolls = p.t_rollover == 1
      local carried = rolls and p.total - p.spent or 0
      begin(p, carried + (rolls and number - p.period or 1) * p.t_total, number)
      p.text = nil
    end
  end
  purses[name] = p
  return p
end

local function changed(name)
  local p = purse(name)
  p.text = nil
  return p
end

local function save()
  for name, p in pairs(purses) do
    if not p.text then
      p.text = struct.pack(format, p.total, p.spent, p.reserved, p.pending, p.n_expected,
        p.n_started, p.n_held, p.n_open, p.n_committed, p.n_refunded, p.n_rejected, p.n_expired,
        p.period, p.t_total, p.t_n_expected, p.t_period, p.t_rollover, p.swept, p.issued)
      call('SET', root .. ':purse:' .. name, p.text)
    end
  end
end

local function names(text)
  if not string.find(text, '\31', 1, true) then return {text} end
  local out = {}
  for name in string.gmatch(text, '[^\31]+') do out[#out + 1] = name end
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

-- A reservation of this purse; `id` is the purse's name and the number.
local function record(id)
  local text = call('GET', root .. ':r:' .. id)
  if not text then return nil end
  local v = cmsgpack.unpack(text)
  return {id = id, state = v[1], purses = v[2], amount = v[3], pending = v[4], deciding = v[5],
    offer = v[6], key = v[7], token = v[8], over = v[9], late = v[10]}
end

local function write(r)
  call('SET', root .. ':r:' .. r.id, cmsgpack.pack({r.state, r.purses, r.amount, r.pending,
    r.deciding, r.offer, r.key, r.token, r.over, r.late}))
end

local function key_of(id, key) return root .. ':key:' .. names(id)[1] .. '\31' .. key end

local function erase(r)
  call('DEL', root .. ':r:' .. r.id)
  call('ZREM', root .. ':due', r.id)
  if r.key ~= '' then call('DEL', key_of(r.id, r.key)) end
end

local function release(r)
  for i, name in ipairs(names(r.purses)) do
    local p = changed(name)
    p.n_held = p.n_held - 1
    give_back(p, r.amount)
    if i == 1 then p.n_started = p.n_started - 1 end
  end
  erase(r)
end

local function insert(state, amount, pending, deciding, offer, key, timeout)
  local p = changed(own)
  p.issued = p.issued + 1
  local id = own .. '\31' .. string.format('%d', p.issued)
  write({id = id, state = state, purses = joined, amount = amount, pending = pending,
    deciding = deciding, offer = offer, key = key})
  call('ZADD', root .. ':due', timeout and string.format('%.17g', now + timeout) or '+inf', id)
  if key ~= '' then call('SET', key_of(id, key), id) end
  return id
end

-- The open or committed reservation of a key; an expired one is past.
local function known(key)
  if key == '' then return nil end
  local id = call('GET', root .. ':key:' .. own .. '\31' .. key)
  if not id then return nil end
  local r = record(id)
  if r.state == 'expired' then
    call('DEL', key_of(id, key))
    r.key = ''
    write(r)
    return nil
  end
  r.text = r.offer .. '\n' .. r.purses
  return r
end

local function answer(status, list, id, text)
  local least = math.huge
  for i = 1, #list do least = math.min(least, room(purse(list[i]))) end
  save()
  local number = id and string.match(id, '%d+$') or ''
  return {status, purse(own).text, struct.pack('<d', least), number, text or ''}
end

local function sweep()
  local due = call('ZRANGEBYSCORE', root .. ':due', '-inf', string.format('%.17g', now), 'LIMIT',
    0, 100)
  for _, id in ipairs(due) do
    local r = record(id)
    if r.state == 'held' then
      release(r)
    elseif r.state == 'open' then
      for _, name in ipairs(names(r.purses)) do
        local p = changed(name)
        close(p, r)
        p.spent = p.spent + r.deciding
        p.n_expired = p.n_expired + 1
      end
      r.state = 'expired'
      write(r)
      call('ZREM', root .. ':due', id)
      call('SADD', root .. ':expired', id)
    else
      erase(r)
    end
  end
  -- Of more than so many at once the others follow with the next call.
  if #due < 100 then changed(own).swept = now end
end

if op == 'open' then
  local key = root .. ':purse:' .. own
  local t = {}
  for i = 4, 7 do t[i] = ARGV[i] == '' and nan or tonumber(ARGV[i]) end
  if call('EXISTS', key) == 0 then
    call('SET', key, struct.pack(format, t[4], 0, 0, 0, t[5], 0, 0, 0, 0, 0, 0, 0,
      period_number(t[6]), t[4], t[5], t[6], t[7], 0, 0))
  end
  return call('GET', key)
end

local swept = purse(own).swept
if now - swept >= SWEEP or now < swept then sweep() end
local list = names(joined)

if op == 'hold' then
  local amount, key, timeout = tonumber(ARGV[5]), ARGV[6], tonumber(ARGV[7])
  local r = known(key)
  if r then return answer(r.state, list, r.id, r.text) end
  for i, name in ipairs(list) do
    if amount > room(purse(name)) then
      changed(own).n_rejected = purse(own).n_rejected + 1
      return answer('full', list, tostring(i))
    end
  end
  changed(own).n_started = purse(own).n_started + 1
  for _, name in ipairs(list) do
    local p = changed(name)
    p.reserved, p.n_held = p.reserved + amount, p.n_held + 1
  end
  return answer('held', list, insert('held', amount, 0, 0, '', '', timeout))

elseif op == 'release' then
  local r = record(own .. '\31' .. ARGV[5])
  if r and r.state == 'held' then release(r) end
  return answer('released', list)

elseif op == 'reserve' then
  local held, key, timeout = ARGV[5], ARGV[6], tonumber(ARGV[7])
  local least, keep, offer = tonumber(ARGV[8]), tonumber(ARGV[9]), ARGV[10]
  local amount, pending, deciding = tonumber(ARGV[11]), tonumber(ARGV[12]), tonumber(ARGV[13])
  local h = held ~= '' and record(own .. '\31' .. held) or nil
  if h and h.state ~= 'held' then h = nil end
  local r = known(key)
  if r then
    if h then release(h) end
    return answer(r.state, list, r.id, r.text)
  end
  -- It was decided with money that has gone back since.
  if held ~= '' and not h then return answer('lost', list) end
  local p, smallest, full = changed(own), math.huge, 1
  for i, name in ipairs(list) do
    local this = room(purse(name)) + (h and h.amount or 0)
    if this < smallest then smallest, full = this, i end
  end
  if h then smallest = max(smallest, h.amount) end
  if not amount then
    if h then release(h) end
    p.n_rejected = p.n_rejected + 1
    return answer('full', list, tostring(full))
  end
  local spare = smallest
  if amount > least and not none(p.n_expected) then
    spare = spare - keep * max(p.n_expected - p.n_started - (h and 0 or 1), 0)
  end
  if amount > spare then return answer('stale', list) end
  if h then release(h) end
  p.n_started = p.n_started + 1
  for i = 1, #list do
    local q = changed(list[i])
    q.reserved, q.pending, q.n_open = q.reserved + amount, q.pending + pending, q.n_open + 1
  end
  return answer('open', list, insert('open', amount, pending, deciding, offer, key, timeout))

elseif op == 'settle' then
  local id, offer, cost, token = own .. '\31' .. ARGV[5], ARGV[6], tonumber(ARGV[7]), ARGV[8]
  local r = record(id)
  if r and (r.state == 'open' or r.state == 'expired') and r.offer == offer then
    local late, over = r.state == 'expired', -math.huge
    for _, name in ipairs(names(r.purses)) do
      local p = changed(name)
      local charge = r.deciding + (cost or 0)
      if late then
        charge = charge - r.deciding
        p.n_expired = p.n_expired - 1
      else
        close(p, r)
      end
      p.spent = p.spent + charge
      if cost then p.n_committed = p.n_committed + 1 else p.n_refunded = p.n_refunded + 1 end
      over = max(over, p.spent - p.total)
    end
    if late then call('SREM', root .. ':expired', id) end
    r.token, r.over, r.late = token, over, late and '1' or '0'
    if r.key ~= '' and cost then
      r.state = 'committed'
      write(r)
      local until_then = tonumber(ARGV[9])
      call('ZADD', root .. ':due', until_then and string.format('%.17g', now + until_then)
        or '+inf', id)
    else
      if not late then call('ZREM', root .. ':due', id) end
      if r.key ~= '' then call('DEL', key_of(id, r.key)) end
      -- Remembered for a while: the same settlement may be sent again, after a connection
      -- broke before the answer came.
      r.state = 'done'
      call('SET', root .. ':r:' .. id, cmsgpack.pack({'done', r.purses, 0, 0, 0, '', '', token,
        over, r.late}), 'EX', 120)
    end
  elseif not r or r.token ~= token then
    return answer('not open', list)
  end
  return answer('settled', list, nil, struct.pack('<dd', r.over, r.late == '1' and 1 or 0))

elseif op == 'books' then
  return answer('books', list)

elseif op == 'top_up' then
  local p = changed(own)
  p.total = p.total + tonumber(ARGV[5])
  -- Of NaN, which is unknown, the sum is too.
  p.n_expected = p.n_expected + tonumber(ARGV[6])
  return answer('books', list)

elseif op == 'reset' then
  local p = changed(own)
  begin(p, p.t_total, p.period)
  return answer('books', list)

elseif op == 'unsettled' then
  local out, every = {}, call('ZRANGE', root .. ':due', 0, -1)
  for _, id in ipairs(call('SMEMBERS', root .. ':expired')) do every[#every + 1] = id end
  for _, id in ipairs(every) do
    local r = names(id)[1] == own and record(id)
    if r and (r.state == 'open' or r.state == 'expired') then
      out[#out + 1] = {string.match(id, '%d+$'), r.purses, r.state, r.offer,
        call('ZSCORE', root .. ':due', id) or '', r.key}
    end
  end
  save()
  return out
end
"""
