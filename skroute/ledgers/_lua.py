"""The bookings of `_books.Purse` and `_transactions` as one script that Redis runs alone.

A purse is one string of float64 (books, terms, when deadlines were last looked at, how many
reservations were issued; NaN is None). A reservation of one purse without a key is an entry of
the deadlines, `purse number offer`: its money can be read from the offer. Any other one is a
record of MessagePack, and its entry is `purse number`. A test runs the same drawn orders of calls
through this script and through the other ledgers.
"""

SCRIPT = r"""
local root, op, now, joined = KEYS[1], ARGV[1], tonumber(ARGV[2]), ARGV[3]
if not now then
  local t = redis.call('TIME')
  now = tonumber(t[1]) + tonumber(t[2]) / 1e6
end
local call, max, nan, format = redis.call, math.max, 0 / 0, '<dddddddddddddddddd'
local unpack, pack = struct.unpack, struct.pack
local SLACK, SWEEP = 1 + 1e-12, 0.05

-- What nearly every call is, without a table or function made: one purse without periods, no
-- key, nothing held, deadlines looked at lately. All else goes on below, where the same is said
-- of several purses.
local short = (op == 'settle' or op == 'reserve' and ARGV[5] ~= '' and not ARGV[6])
local text = short and call('GET', root .. ':purse:' .. joined)
if text then
  local total, spent, reserved, pending, n_expected, n_started, n_held, n_open, n_committed,
    n_refunded, n_rejected, n_expired, period, t_total, t_n_expected, t_period,
    swept, issued = unpack(format, text)
  local booked
  if period == period or now - swept >= SWEEP or now < swept then
    -- Below.
  elseif op == 'reserve' then
    local timeout, least, keep, amount, expected = unpack('<ddddd', ARGV[4])
    local spare = total * SLACK - spent - reserved
    if amount > least and n_expected == n_expected then
      spare = spare - keep * max(n_expected - n_started - 1, 0)
    end
    if amount <= spare then
      n_started, reserved, pending = n_started + 1, reserved + amount, pending + expected
      n_open, issued = n_open + 1, issued + 1
      call('ZADD', root .. ':due', now + timeout, joined .. '\31' .. issued .. '\31' .. ARGV[5])
      booked = true
    end
  elseif call('ZREM', root .. ':due', joined .. '\31' .. ARGV[6] .. '\31' .. ARGV[5]) == 1 then
    local _, cost, amount, expected, deciding = unpack('<ddddd', ARGV[4])
    n_open = n_open - 1
    pending = n_open > 0 and pending - expected or 0
    reserved = (n_open > 0 or n_held > 0) and reserved - amount or 0
    if cost == cost then
      spent, n_committed = spent + (deciding + cost), n_committed + 1
    else
      spent, n_refunded = spent + deciding, n_refunded + 1
    end
    -- Remembered for a while, as below.
    call('SET', root .. ':last:' .. ARGV[7], pack('<dd', spent - total, 0) .. ARGV[8], 'EX', 120)
    booked = true
  end
  if booked then
    text = pack(format, total, spent, reserved, pending, n_expected, n_started, n_held, n_open,
      n_committed, n_refunded, n_rejected, n_expired, period, t_total, t_n_expected, t_period,
      swept, issued)
    call('SET', root .. ':purse:' .. joined, text)
    return text
  end
end

local own = string.match(joined, '^[^\31]*')
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
    p.t_period, p.swept, p.issued = unpack(format, text)
  p.text = text
  if not none(p.period) then
    local number = period_number(p.t_period)
    if number > p.period then
      begin(p, p.t_total, number)
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
      p.text = pack(format, p.total, p.spent, p.reserved, p.pending, p.n_expected,
        p.n_started, p.n_held, p.n_open, p.n_committed, p.n_refunded, p.n_rejected, p.n_expired,
        p.period, p.t_total, p.t_n_expected, p.t_period, p.swept, p.issued)
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

-- A reservation by its entry: `id`, which is the purse's name and the number, or with the offer.
local function record(entry, state)
  local id, offer = string.match(entry, '^([^\31]*\31%d+)\31(.*)$')
  if id then
    local money = cjson.decode(offer)
    return {entry = entry, id = id, state = state, purses = string.match(id, '^[^\31]*'),
      amount = money[5], pending = money[4] + money[3], deciding = money[4], offer = offer,
      key = '', plain = true}
  end
  local text = call('GET', root .. ':r:' .. entry)
  if not text then return nil end
  local v = cmsgpack.unpack(text)
  return {entry = entry, id = entry, state = v[1], purses = v[2], amount = v[3], pending = v[4],
    deciding = v[5], offer = v[6], key = v[7]}
end

-- That of an id and an offer, open or expired.
local function unsettled(id, offer)
  local r = record(id)
  if r then return (r.state == 'open' or r.state == 'expired') and r.offer == offer and r or nil end
  local entry = id .. '\31' .. offer
  if call('ZSCORE', root .. ':due', entry) then return record(entry, 'open') end
  if call('SISMEMBER', root .. ':expired', entry) == 1 then return record(entry, 'expired') end
end

local function write(r)
  if r.plain then return end
  call('SET', root .. ':r:' .. r.id, cmsgpack.pack({r.state, r.purses, r.amount, r.pending,
    r.deciding, r.offer, r.key}))
end

local function key_of(id, key) return root .. ':key:' .. names(id)[1] .. '\31' .. key end

local function erase(r)
  if not r.plain then call('DEL', root .. ':r:' .. r.id) end
  call('ZREM', root .. ':due', r.entry)
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
  local id = own .. '\31' .. p.issued
  local plain = state == 'open' and key == '' and own == joined
  write({id = id, state = state, purses = joined, amount = amount, pending = pending,
    deciding = deciding, offer = offer, key = key, plain = plain})
  call('ZADD', root .. ':due', now + timeout, plain and id .. '\31' .. offer or id)
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
  return {status, purse(own).text, pack('<d', least), number, text or ''}
end

local function sweep()
  local due = call('ZRANGEBYSCORE', root .. ':due', '-inf', string.format('%.17g', now), 'LIMIT',
    0, 100)
  for _, entry in ipairs(due) do
    local r = record(entry, 'open')
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
      call('ZREM', root .. ':due', entry)
      call('SADD', root .. ':expired', entry)
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
  for i = 4, 6 do t[i] = ARGV[i] == '' and nan or tonumber(ARGV[i]) end
  if call('EXISTS', key) == 0 then
    call('SET', key, pack(format, t[4], 0, 0, 0, t[5], 0, 0, 0, 0, 0, 0, 0,
      period_number(t[6]), t[4], t[5], t[6], 0, 0))
  end
  return call('GET', key)
end

-- A purse that is not there is an error, which comes before anything is written.
local list = names(joined)
for i = 1, #list do purse(list[i]) end
local swept = purse(own).swept
if now - swept >= SWEEP or now < swept then sweep() end

if op == 'hold' then
  local key, amount, timeout = ARGV[5], unpack('<dd', ARGV[4])
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
  local r = record(own .. '\31' .. ARGV[4])
  if r and r.state == 'held' then release(r) end
  return answer('released', list)

elseif op == 'reserve' then
  local timeout, least, keep, amount, pending, deciding = unpack('<dddddd', ARGV[4])
  local offer, held, key = ARGV[5], ARGV[6] or '', ARGV[7] or ''
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
  if offer == '' then
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
  local remember, cost = unpack('<dd', ARGV[4])
  local last, token = root .. ':last:' .. ARGV[7], ARGV[8]
  local r, paid = unsettled(own .. '\31' .. ARGV[6], ARGV[5]), cost == cost
  if not r then
    -- It may be sent again, after a connection broke before the answer came.
    local said = call('GET', last)
    if said and string.sub(said, 17) == token then
      return answer('settled', list, nil, string.sub(said, 1, 16))
    end
    return answer('not open', list)
  end
  local late, over = r.state == 'expired', -math.huge
  for _, name in ipairs(names(r.purses)) do
    local p = changed(name)
    local charge = r.deciding + (paid and cost or 0)
    if late then
      charge = charge - r.deciding
      p.n_expired = p.n_expired - 1
    else
      close(p, r)
    end
    p.spent = p.spent + charge
    if paid then p.n_committed = p.n_committed + 1 else p.n_refunded = p.n_refunded + 1 end
    over = max(over, p.spent - p.total)
  end
  if late then call('SREM', root .. ':expired', r.entry) end
  if r.key ~= '' and paid then
    r.state = 'committed'
    write(r)
    call('ZADD', root .. ':due', now + remember, r.id)
  else
    erase(r)
  end
  local said = pack('<dd', over, late and 1 or 0)
  call('SET', last, said .. token, 'EX', 120)
  return answer('settled', list, nil, said)

elseif op == 'books' then
  return answer('books', list)

elseif op == 'top_up' then
  local p = changed(own)
  p.total = p.total + tonumber(ARGV[4])
  -- Of NaN, which is unknown, the sum is too.
  p.n_expected = p.n_expected + tonumber(ARGV[5])
  return answer('books', list)

elseif op == 'reset' then
  local p = changed(own)
  begin(p, p.t_total, p.period)
  return answer('books', list)

elseif op == 'unsettled' then
  local out = {}
  local function tell(entry, state)
    local r = names(entry)[1] == own and record(entry, state)
    if r and r.state == state then
      out[#out + 1] = {string.match(r.id, '%d+$'), r.purses, state, r.offer,
        call('ZSCORE', root .. ':due', entry) or '', r.key}
    end
  end
  for _, entry in ipairs(call('ZRANGE', root .. ':due', 0, -1)) do tell(entry, 'open') end
  for _, entry in ipairs(call('SMEMBERS', root .. ':expired')) do tell(entry, 'expired') end
  save()
  return out
end
"""
