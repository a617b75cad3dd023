// The page of the control API: fetches the state once a second, follows /events, and sends what its buttons and forms say.
// Values are put into the page as text only; no markup is made of them.
'use strict'

const POLL_MS = 1000
const TIMELINE_MS = 5 * 60_000
const SHOWN_REQUESTS = 100
const SHOWN_EVENTS = 100
const SHOWN_LANES = 24
const MOST_LANES = 500
const SHOWN_VALUES = 5
const TOKEN = 'klamm-token'
const SVG = 'http://www.w3.org/2000/svg'
const EVENT_KINDS = ['hold', 'released', 'crashed', 'fault', 'broker', 'controller', 'expired', 'topic', 'zookeeper', 'change', 'coordinator', 'requests']
const EFFECTS = {
  error: ['respond with an error', 'Error', 'text'],
  delay_ms: ['delay', 'Milliseconds', 'number'],
  drop: ['drop the request', null],
  lose_response: ['process, lose the response', null],
  close: ['close the connection', 'before, amid or after', 'text'],
  corrupt: ['corrupt the response', null],
  truncate: ['truncate the response', 'Bytes', 'number'],
  correlation_id: ['other correlation id', 'Correlation id', 'number'],
  throttle_time_ms: ['throttle', 'Milliseconds', 'number'],
  slow_disk_ms: ['slow disk', 'Milliseconds', 'number'],
}
const TEXTS = new Set([
  'Topic', 'Partition: leader', 'Group', 'Members', 'Transactional id', 'Partitions', 'Where', 'Held at', 'Filter', 'Effect', 'Client id',
  'Request and response', 'Error',
]) // columns whose words may break anywhere
const COMMON_ERRORS = [
  'NOT_LEADER_OR_FOLLOWER', 'REQUEST_TIMED_OUT', 'NOT_ENOUGH_REPLICAS', 'UNKNOWN_TOPIC_OR_PARTITION', 'LEADER_NOT_AVAILABLE',
  'COORDINATOR_NOT_AVAILABLE', 'NOT_COORDINATOR', 'COORDINATOR_LOAD_IN_PROGRESS', 'REBALANCE_IN_PROGRESS', 'UNKNOWN_MEMBER_ID',
  'OFFSET_OUT_OF_RANGE', 'FENCED_LEADER_EPOCH', 'OUT_OF_ORDER_SEQUENCE_NUMBER', 'INVALID_PRODUCER_EPOCH', 'KAFKA_STORAGE_ERROR',
]
const COMMON_APIS = [
  'Produce', 'Fetch', 'Metadata', 'ListOffsets', 'FindCoordinator', 'JoinGroup', 'SyncGroup', 'Heartbeat', 'OffsetCommit', 'OffsetFetch',
  'InitProducerId', 'AddPartitionsToTxn', 'EndTxn', 'TxnOffsetCommit', 'CreateTopics', 'ApiVersions',
]

// What a hold does with what reaches its phase: the label, and what the body of the hold has.
const HOLD_ACTIONS = {
  hold: ['hold', {}], crash: ['kill the broker', { crash: true }], fail: ['let it fail', { fail: 'ConnectionLost' }],
  delay: ['delay by 1 s', { delay_ms: 1000 }],
}
const ZOOKEEPER_ACTIONS = { expire: 'end the session', cut: 'cut the connection', restore: 'restore the connection', delay: 'delay requests' }

const $ = id => document.getElementById(id)

// --- the API

let token = sessionStorage.getItem(TOKEN)

class ApiError extends Error {
  constructor (status, text) {
    super(text)
    this.status = status
  }
}

async function api (method, path, body) {
  const headers = {}
  if (token !== null) headers.Authorization = `Bearer ${token}`
  if (body !== undefined) headers['Content-Type'] = 'application/json'
  const response = await fetch(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) })
  const value = await response.json().catch(() => ({}))
  if (!response.ok) throw new ApiError(response.status, value.error ?? `HTTP status ${response.status}`)
  return value
}

async function act (method, path, body) {
  try {
    const value = await api(method, path, body)
    hideError()
    poll()
    return value
  } catch (error) {
    showError(error)
    return null
  }
}

function showError (error) {
  if (error.status === 401) requestToken()
  $('error-text').textContent = error instanceof ApiError ? error.message : 'The cluster cannot be reached.'
  $('error').hidden = false
}

function hideError () {
  $('error').hidden = true
}

function requestToken () {
  if (!$('token-form').hidden) return
  $('token-form').hidden = false
  $('token').focus()
}

// --- elements

function el (name, attributes, ...children) {
  const made = document.createElement(name)
  for (const [key, value] of Object.entries(attributes ?? {})) made.setAttribute(key, value)
  made.append(...children)
  return made
}

function svg (name, attributes, text) {
  const made = document.createElementNS(SVG, name)
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value)
  if (text !== undefined) made.textContent = text
  return made
}

function setText (element, value) {
  const text = value === null || value === undefined || value === '' ? '-' : String(value)
  if (element.textContent !== text) element.textContent = text
}

function button (label, spoken, onClick) {
  const made = el('button', { type: 'button', 'aria-label': spoken }, label)
  made.addEventListener('click', () => { if (made.getAttribute('aria-disabled') !== 'true') onClick() })
  return made
}

// A button with two labels, one at a time. It stays the same element, so it keeps the focus.
function toggle (first, second, what, onClick) {
  const made = button(first, `${first} ${what}`, () => onClick(made.textContent))
  made.choose = label => {
    setText(made, label)
    if (made.getAttribute('aria-label') !== `${label} ${what}`) made.setAttribute('aria-label', `${label} ${what}`)
  }
  return made
}

function enable (element, isEnabled) {
  const value = String(!isEnabled)
  if (element.getAttribute('aria-disabled') !== value) element.setAttribute('aria-disabled', value)
}

// Rows of a table by key. A row is made once and then updated, so that focus, selection and open details stay.
function sync (body, items, keyOf, make, update) {
  const rows = body.rowsByKey ??= new Map()
  const keys = new Set(items.map(item => String(keyOf(item))))
  for (const [key, row] of rows) {
    if (!keys.has(key)) {
      row.element.remove()
      rows.delete(key)
    }
  }
  let before = body.firstChild
  for (const item of items) {
    const key = String(keyOf(item))
    let row = rows.get(key)
    if (row === undefined) {
      row = make(item)
      rows.set(key, row)
    }
    update(row, item)
    if (row.element === before) before = before.nextSibling
    else body.insertBefore(row.element, before)
  }
}

function row (labels, ...cells) {
  const made = { element: el('tr'), cells: [] }
  labels.forEach((label, index) => {
    const attributes = TEXTS.has(label) ? { 'data-label': label, class: 'text' } : { 'data-label': label }
    const cell = el('td', attributes, ...(cells[index] ?? []))
    made.cells.push(cell)
    made.element.append(cell)
  })
  return made
}

function fill (made, values) {
  values.forEach((value, index) => { if (value !== undefined) setText(made.cells[index], value) })
}

function labelsOf (bodyId) {
  return [...$(bodyId).closest('table').querySelectorAll('th')].map(head => head.textContent)
}

function pairs (values) {
  return Object.entries(values).map(([name, value]) => `${name}=${short(value)}`).join(' ')
}

// A value as text: a partition as `orders-0`, of a long list the first ones and its length.
function short (value) {
  if (typeof value === 'string') return value
  if (Array.isArray(value)) {
    const shown = value.slice(0, SHOWN_VALUES).map(short).join(', ')
    return value.length > SHOWN_VALUES ? `[${shown}, … ${value.length} in all]` : `[${shown}]`
  }
  if (value !== null && typeof value === 'object') {
    return Object.keys(value).join() === 'topic,partition' ? `${value.topic}-${value.partition}` : `{${pairs(value)}}`
  }
  return String(value)
}

function timeOf (text) {
  return String(text).slice(11, 23)
}

// --- brokers and the controller

function showBrokers (brokers) {
  const labels = labelsOf('brokers')
  sync($('brokers'), brokers, broker => broker.id, broker => {
    const at = `brokers/${broker.id}`
    const buttons = {
      start: toggle('Start', 'Stop', `broker ${broker.id}`, word => act('POST', `${at}/${word.toLowerCase()}`)),
      kill: button('Kill', `Kill broker ${broker.id}`, () => act('POST', `${at}/kill`)),
      pause: toggle('Pause', 'Resume', `broker ${broker.id}`, word => act('POST', `${at}/${word.toLowerCase()}`)),
    }
    const made = row(labels, [], [], [], [], [], [], Object.values(buttons))
    made.buttons = buttons
    made.cells[6].className = 'actions'
    return made
  }, (made, broker) => {
    const runs = broker.state === 'running' || broker.state === 'paused'
    const state = broker.is_controller ? `${broker.state}, controller` : broker.state
    fill(made, [broker.id, state, runs ? `${broker.host}:${broker.port}` : '', broker.epoch ?? null, broker.leaders ?? null, broker.replicas ?? null])
    made.cells[1].className = broker.state
    made.buttons.start.choose(runs ? 'Stop' : 'Start')
    made.buttons.pause.choose(broker.state === 'paused' ? 'Resume' : 'Pause')
    enable(made.buttons.kill, runs)
    enable(made.buttons.pause, runs)
  })
  sync($('move-to'), brokers, broker => broker.id, broker => {
    return { element: el('option', { value: broker.id }, String(broker.id)) }
  }, () => {})
  chooseBrokers(brokers)
}

function showController (controller) {
  const held = controller.held.map(hold => ` Held at ${hold.phase} (${pairs(hold.at)}).`).join('')
  const text = controller.id < 0 ? 'There is no active controller.'
    : `Broker ${controller.id} with controller epoch ${controller.epoch}. Events in its queue: ${controller.queue}.` +
      `${controller.event === null ? '' : ` It processes ${controller.event}.`}${held}`
  setText($('controller'), text)
}

// --- topics

let openTopic = null

function showTopics (topics) {
  const labels = labelsOf('topics')
  sync($('topics'), topics, topic => topic.name, topic => {
    const name = el('button', { type: 'button', class: 'link', 'aria-expanded': 'false', 'aria-controls': 'topic' }, topic.name)
    name.addEventListener('click', () => {
      openTopic = openTopic === topic.name ? null : topic.name
      poll()
    })
    const made = row(labels, [name])
    made.name = name
    return made
  }, (made, topic) => {
    const states = topic.states
    const leaders = states.slice(0, 30).map(state => `${state.partition}: ${state.leader < 0 ? 'none' : state.leader}`).join(', ')
    const lagging = states.filter(state => state.isr.length < state.replicas.length).length
    const without = states.filter(state => state.leader < 0).length
    fill(made, [undefined, topic.partitions, states.length > 30 ? `${leaders}, …` : leaders, lagging, without])
    made.cells[3].className = lagging > 0 ? 'paused' : ''
    made.cells[4].className = without > 0 ? 'error' : ''
    made.name.setAttribute('aria-expanded', String(topic.name === openTopic))
  })
}

function showTopic (topic, brokers) {
  $('topic').hidden = topic === null
  if (topic === null) return
  setText($('topic-title'), `Topic ${topic.name}, id ${topic.topic_id ?? 'none'}`)
  const labels = ['Partition', 'Leader', 'Leader epoch', 'ISR', 'Replicas', ...brokers.map(broker => `Log end at ${broker.id}`)]
  const key = labels.join()
  if ($('topic-head').dataset.key !== key) {
    $('topic-head').dataset.key = key
    $('topic-head').replaceChildren(...labels.map(label => el('th', {}, label)))
    $('topic-rows').replaceChildren()
    $('topic-rows').rowsByKey = undefined
  }
  sync($('topic-rows'), topic.partitions, each => `${topic.name}-${each.partition}`, () => row(labels), (made, each) => {
    const ends = brokers.map(broker => {
      const seen = each.brokers[broker.id]
      if (seen === undefined || seen.log_end_offset === undefined) return ''
      return `${seen.log_end_offset} (HW ${seen.high_watermark})`
    })
    const leader = each.leader < 0 ? 'none' : each.leader
    fill(made, [each.partition, leader, each.zookeeper.leader_epoch, each.isr.join(', '), each.replicas.join(', '), ...ends])
    made.cells[1].className = each.leader < 0 ? 'error' : ''
    made.cells[3].className = each.isr.length < each.replicas.length ? 'paused' : ''
  })
}

// --- groups and transactions

function showGroups (groups, transactions) {
  const labels = labelsOf('groups')
  sync($('groups'), groups, group => group.group, group => {
    const at = `groups/${encodeURIComponent(group.group)}`
    return row(labels, [], [], [], [], [], [
      button('Rebalance', `Rebalance group ${group.group}`, () => act('POST', `${at}/rebalance`)),
      button('Expire members', `Expire all members of group ${group.group}`, () => act('POST', `${at}/expire`)),
    ])
  }, (made, group) => {
    const members = group.members.map(member => member.client_id || member.member_id).join(', ')
    const count = group.members.length === 0 ? '0' : `${group.members.length}: ${members}`
    fill(made, [group.group, group.state, group.generation, group.coordinator, count])
  })
  const others = labelsOf('transactions')
  sync($('transactions'), transactions, each => each.transactional_id, each => {
    const at = `transactions/${encodeURIComponent(each.transactional_id)}`
    const abort = button('Abort', `Abort the transaction of ${each.transactional_id}`, () => act('POST', `${at}/expire`))
    return row(others, [], [], [], [], [], [abort])
  }, (made, each) => {
    const producer = `${each.producer_id}, epoch ${each.producer_epoch}`
    fill(made, [each.transactional_id, each.state, producer, each.coordinator, each.partitions.map(p => `${p.topic}-${p.partition}`).join(', ')])
  })
}

// --- holds

let phases = []

function showPhases () {
  const byKind = new Map()
  for (const phase of phases) {
    if (!byKind.has(phase.kind)) byKind.set(phase.kind, el('optgroup', { label: phase.kind }))
    byKind.get(phase.kind).append(el('option', { value: phase.name }, phase.name))
  }
  $('hold-phase').replaceChildren(...byKind.values())
  describePhase()
}

function describePhase () {
  const phase = phases.find(each => each.name === $('hold-phase').value)
  if (phase === undefined) return
  const fields = Object.entries(phase.fields).map(([name, type]) => `${name} (${type})`).join(', ')
  $('hold-help').textContent = `${phase.text.replace(/\s+/g, ' ')} Fields: ${fields}.`
}

// `topic=orders partition=0` as an object; a value is JSON or a text.
function whereOf (text) {
  const where = {}
  for (const part of text.split(/\s+/).filter(each => each !== '')) {
    const at = part.indexOf('=')
    if (at < 1) throw new ApiError(0, `“${part}” is not field=value`)
    const value = part.slice(at + 1)
    try {
      where[part.slice(0, at)] = JSON.parse(value)
    } catch {
      where[part.slice(0, at)] = value
    }
  }
  return where
}

function numberOf (id) {
  return $(id).value === '' ? null : Number($(id).value)
}

async function hold () {
  try {
    const body = { phase: $('hold-phase').value, where: whereOf($('hold-where').value), count: numberOf('hold-count'), nth: numberOf('hold-nth') }
    Object.assign(body, HOLD_ACTIONS[$('hold-action').value][1])
    await act('POST', 'holds', body)
  } catch (error) {
    showError(error)
  }
}

function showHolds (holds) {
  const labels = labelsOf('holds')
  sync($('holds'), holds, each => each.id, each => {
    const at = `holds/${each.id}`
    const buttons = {
      release: toggle('Release', 'Remove', `hold ${each.id}`, word => word === 'Remove' ? act('DELETE', at) : act('POST', `${at}/release`)),
      step: button('Step', `Step hold ${each.id}`, () => act('POST', `${at}/step`)),
      fail: button('Fail', `Fail hold ${each.id}`, () => act('POST', `${at}/fail`)),
      crash: button('Crash', `Crash the broker that hold ${each.id} holds`, () => act('POST', `${at}/crash`)),
    }
    const made = row(labels, [], [], [], [], [], [], Object.values(buttons))
    made.buttons = buttons
    made.cells[6].className = 'actions'
    return made
  }, (made, each) => {
    const where = pairs(each.where)
    fill(made, [each.id, each.phase, where === '' ? 'anywhere' : where, each.state, each.hits, each.at === null ? '' : pairs(each.at)])
    made.cells[3].className = each.state
    made.buttons.release.choose(each.state === 'released' ? 'Remove' : 'Release')
    for (const name of ['step', 'fail', 'crash']) enable(made.buttons[name], each.state === 'reached')
  })
}

// --- links, ZooKeeper, topics

function addLink () {
  const ms = numberOf('link-ms')
  const ways = { from_broker: Number($('link-from').value), to_broker: Number($('link-to').value), both: $('link-both').checked }
  return act('POST', 'links', ms === null ? { ...ways, cut: true } : { ...ways, delay_ms: ms })
}

function chooseZooKeeperAction () {
  const delays = $('zookeeper-action').value === 'delay'
  $('zookeeper-ms-label').hidden = !delays
  $('zookeeper-ms').required = delays
}

function steerZooKeeper () {
  const action = $('zookeeper-action').value
  const broker = Number($('zookeeper-broker').value)
  return act('POST', `zookeeper/${action}`, action === 'delay' ? { broker, ms: numberOf('zookeeper-ms') } : { broker })
}

async function createTopic () {
  const name = $('topic-name').value.trim()
  const body = { name, partitions: numberOf('topic-partitions'), replication_factor: numberOf('topic-replicas') }
  if (await act('POST', 'topics', body) !== null) $('topic-name').value = ''
}

async function addPartitions () {
  const path = `topics/${encodeURIComponent(openTopic)}/partitions`
  if (await act('POST', path, { partitions: numberOf('partitions-count') }) !== null) $('partitions-count').value = ''
}

function deleteTopic () {
  const name = openTopic
  openTopic = null
  return act('DELETE', `topics/${encodeURIComponent(name)}`)
}

// The choice of a broker in the forms: the options change only when brokers come or go, so that a choice stays.
function chooseBrokers (brokers) {
  const ids = brokers.map(broker => broker.id)
  for (const [place, id] of ['link-from', 'link-to', 'zookeeper-broker'].entries()) {
    const select = $(id)
    if (select.options.length === ids.length) continue
    const chosen = select.value
    select.replaceChildren(...ids.map(each => el('option', { value: each }, each)))
    select.value = chosen === '' ? String(ids[place % 2] ?? ids[0]) : chosen
  }
}

// --- faults

function chooseEffect () {
  const [, label, type] = EFFECTS[$('fault-effect').value]
  $('fault-value-label').hidden = label === null
  $('fault-value').required = label !== null
  if (label === null) return
  $('fault-value-label').firstChild.textContent = `${label} `
  $('fault-value').type = type
  if ($('fault-effect').value === 'error') $('fault-value').setAttribute('list', 'errors')
  else $('fault-value').removeAttribute('list')
}

// The body of a fault from the values of the form; what is empty is left out.
function faultOf (values) {
  const filter = {}
  for (const name of ['api', 'client_id', 'topic']) if (values[name] !== '') filter[name] = values[name]
  if (values.partition !== '') filter.partition = Number(values.partition)
  const [, label, type] = EFFECTS[values.effect]
  const value = label === null ? true : type === 'number' ? Number(values.value) : values.value
  const body = { filter, effect: { [values.effect]: value } }
  if (values.first !== '') body.first = Number(values.first)
  return body
}

function addFault () {
  return act('POST', 'faults', faultOf({
    api: $('fault-api').value.trim(), client_id: $('fault-client').value.trim(), topic: $('fault-topic').value.trim(),
    partition: $('fault-partition').value, effect: $('fault-effect').value, value: $('fault-value').value.trim(), first: $('fault-first').value,
  }))
}

function showFaults (faults) {
  const labels = labelsOf('faults')
  sync($('faults'), faults, each => each.id, each => {
    return row(labels, [], [], [], [], [], [], [button('Remove', `Remove fault ${each.id}`, () => act('DELETE', `faults/${each.id}`))])
  }, (made, each) => {
    const limits = []
    if (each.first !== null) limits.push(`first ${each.first}`)
    if (each.after > 0) limits.push(`after ${each.after}`)
    if (each.probability < 1) limits.push(`probability ${each.probability}, seed ${each.seed}`)
    if (each.spent) limits.push('spent')
    const { direction, ...filter } = each.filter
    const shown = pairs(direction === 'response' ? each.filter : filter)
    fill(made, [each.id, shown === '' ? 'all requests' : shown, pairs(each.effect), limits.join(', '), each.hits, each.matches])
    made.cells[4].className = each.hits > 0 ? 'reached number' : 'number'
  })
}

// --- requests

let exchanges = []
let isPaused = false
let filters = { clients: true }

function chooseFilters () {
  const text = id => $(id).value.trim()
  filters = { clients: $('requests-clients').checked, errors: $('requests-errors').checked, client_id: text('requests-client'), api: text('requests-api'), topic: text('requests-topic') }
  exchanges = []
  poll()
}

// Fetch from the first request without a response on: it may have one now. Of errors fetch all: a request may get one late.
function requestsPath () {
  const open = exchanges.find(each => each.response === null)
  const last = open !== undefined ? open.number - 1 : exchanges.length > 0 ? exchanges[exchanges.length - 1].number : 0
  const query = new URLSearchParams({ limit: SHOWN_REQUESTS, after: filters.errors ? 0 : last })
  if (filters.errors) query.set('error', 'any')
  if (filters.clients) query.set('clients', 'true')
  for (const name of ['client_id', 'api', 'topic']) if (filters[name]) query.set(name, filters[name])
  return `requests?${query}`
}

function addRequests (added) {
  const byNumber = new Map(exchanges.map(each => [each.number, each]))
  for (const each of added) byNumber.set(each.number, each)
  exchanges = [...byNumber.values()].sort((a, b) => a.number - b.number).slice(-SHOWN_REQUESTS)
  const labels = labelsOf('requests')
  const shown = [...exchanges].reverse()
  sync($('requests'), shown, each => each.number, each => {
    const summary = el('summary')
    const details = el('details', {}, summary)
    details.addEventListener('toggle', () => {
      if (details.open) details.append(el('pre', {}, JSON.stringify({ request: made.item.request, response: made.item.response }, null, 2)))
      else details.querySelector('pre')?.remove()
    })
    const made = row(labels, [], [], [], [], [], [], [details])
    made.summary = summary
    return made
  }, (made, each) => {
    made.item = each
    fill(made, [each.number, timeOf(each.at), each.broker, each.client_id, `${each.api} v${each.version}`, each.error])
    made.cells[5].className = each.error === null ? 'text' : 'text error'
    const text = each.request === null ? 'not decoded' : JSON.stringify(each.request)
    const waits = each.response === null ? 'no response yet: ' : ''
    setText(made.summary, waits + (text.length > 200 ? `${text.slice(0, 200)}…` : text))
  })
}

// --- the timeline of leaders and controllers

// Changes come as events, which have times, also those before the page was opened. What a poll shows counts if the last event is older:
// brokers learn of a change after the controller has made it.
const lanes = new Map() // name → [{ from, value }], oldest first
const SETTLED_MS = 1500

function note (name, value, at) {
  if (!lanes.has(name)) lanes.set(name, [])
  const spans = lanes.get(name)
  const next = spans.findIndex(span => span.from > at)
  spans.splice(next < 0 ? spans.length : next, 0, { from: at, value })
  const merged = spans.filter((span, index) => index === 0 || span.value !== spans[index - 1].value)
  while (merged.length > 1 && merged[1].from < Date.now() - TIMELINE_MS) merged.shift()
  lanes.set(name, merged)
}

function noteIfSettled (name, value, at) {
  const spans = lanes.get(name)
  const last = spans?.[spans.length - 1]
  if (last === undefined || (last.value !== value && last.from < at - SETTLED_MS)) note(name, value, at)
}

function noteChange (change) {
  if (change.change === 'TermBegan') note('controller', change.controller_id, change.at_ms)
  if (change.change === 'TermEnded') {
    const spans = lanes.get('controller') ?? []
    if (spans.length === 0 || spans[spans.length - 1].value === change.controller_id) note('controller', null, change.at_ms)
  }
  if (change.change !== 'StatesChanged') return
  for (const each of change.partitions) {
    if (isShown(each.topic) && each.leader !== undefined) note(`${each.topic}-${each.partition}`, each.leader < 0 ? null : each.leader, change.at_ms)
  }
}

function isShown (topic) {
  return !topic.startsWith('__') && lanes.size < MOST_LANES
}

function changesAsText () {
  const changes = []
  for (const [name, spans] of lanes) {
    spans.forEach((span, index) => {
      const noun = name === 'controller' ? 'controller' : `leader of ${name}`
      if (index > 0) changes.push({ at: span.from, text: `${noun}: ${nameOf(spans[index - 1].value)} → ${nameOf(span.value)}` })
    })
  }
  return changes.sort((a, b) => b.at - a.at).slice(0, SHOWN_EVENTS)
}

function nameOf (broker) {
  return broker === null ? 'none' : `broker ${broker}`
}

function classOf (broker) {
  return broker === null ? 'none' : `b${broker % 8}`
}

function noteState (controller, topics, now) {
  const gone = new Set(lanes.keys())
  noteIfSettled('controller', controller.id < 0 ? null : controller.id, now)
  gone.delete('controller')
  for (const topic of topics.filter(each => isShown(each.name))) {
    for (const state of topic.states) {
      noteIfSettled(`${topic.name}-${state.partition}`, state.leader < 0 ? null : state.leader, now)
      gone.delete(`${topic.name}-${state.partition}`)
    }
  }
  for (const name of gone) if (topics.length > 0 && lanes.get(name).at(-1).from < now - SETTLED_MS) lanes.delete(name)
}

// Lanes with changes first, the controller above all.
function shownLanes () {
  const names = [...lanes.keys()].filter(name => name !== 'controller')
  names.sort((a, b) => lanes.get(b).length - lanes.get(a).length)
  return ['controller', ...names.slice(0, SHOWN_LANES - 1)]
}

function drawTimeline (now) {
  const names = shownLanes()
  const width = $('timeline').clientWidth || 600
  const left = Math.min(150, width * 0.36)
  const lane = 18
  const height = names.length * lane + 22
  const scale = time => left + (width - left - 4) * (1 - (now - time) / TIMELINE_MS)
  const drawing = svg('svg', { viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': 'Leaders and controllers over time; the list below has the changes as text' })
  names.forEach((name, index) => {
    const y = index * lane
    const room = Math.floor(left / 7)
    drawing.append(svg('text', { x: 0, y: y + 13 }, name.length > room ? `${name.slice(0, room - 1)}…` : name))
    const spans = lanes.get(name) ?? []
    spans.forEach((span, at) => {
      const end = spans[at + 1]?.from ?? now
      const from = Math.max(scale(span.from), left)
      const bar = svg('rect', { x: from, y: y + 3, width: Math.max(scale(end) - from, 1.5), height: lane - 6, class: classOf(span.value) })
      bar.append(svg('title', {}, `${name}: ${nameOf(span.value)}`))
      drawing.append(bar)
    })
  })
  for (let minute = 0; minute <= 5; minute++) {
    const x = scale(now - minute * 60_000)
    drawing.append(svg('line', { x1: x, x2: x, y1: 0, y2: height - 18 }))
    const anchor = minute === 0 ? 'end' : minute === 5 ? 'start' : 'middle'
    drawing.append(svg('text', { x, y: height - 4, 'text-anchor': anchor, class: 'quiet' }, minute === 0 ? 'now' : `-${minute} min`))
  }
  $('timeline').replaceChildren(drawing)
  sync($('changes'), changesAsText(), change => `${change.at} ${change.text}`, change => {
    return { element: el('li', {}, `${timeOf(new Date(change.at).toISOString())} ${change.text}`) }
  }, () => {})
}

function drawLegend (brokers) {
  const key = brokers.map(broker => broker.id).join()
  if ($('legend').dataset.key === key) return
  $('legend').dataset.key = key
  $('legend').replaceChildren(...[...brokers.map(broker => broker.id), null].map(broker => {
    const box = svg('svg', { viewBox: '0 0 12 12', 'aria-hidden': 'true' })
    box.append(svg('rect', { width: 12, height: 12, rx: 2, class: classOf(broker) }))
    return el('span', {}, box, broker === null ? 'none' : `broker ${broker}`)
  }))
}

// --- events

const events = []
let source = null

function follow () {
  source?.close()
  source = new EventSource(token === null ? 'events' : `events?token=${encodeURIComponent(token)}`)
  for (const kind of EVENT_KINDS) {
    source.addEventListener(kind, event => {
      const data = JSON.parse(event.data)
      if (kind === 'change') noteChange(data)
      if (kind !== 'requests') addEvent(Number(event.lastEventId), kind, data)
      soon()
    })
  }
}

function addEvent (number, kind, data) {
  if (events.some(event => event.number === number)) return
  events.push({ number, kind, data })
  events.splice(0, events.length - SHOWN_EVENTS)
  sync($('events'), [...events].reverse(), event => event.number, event => {
    const { at_ms: at, ...data } = event.data
    return { element: el('li', {}, `${timeOf(new Date(at).toISOString())} ${event.kind}: ${pairs(data)}`) }
  }, () => {})
}

// --- polling

let isPolling = false
let isWanted = false
let lastPoll = 0

// Poll again at once, but not while a poll is under way: then after it.
async function poll () {
  if (isPolling) {
    isWanted = true
    return
  }
  isPolling = true
  lastPoll = Date.now()
  try {
    await refresh()
  } catch (error) {
    if (error.status === 401) requestToken()
    setText($('status'), error instanceof ApiError ? error.message : 'The cluster cannot be reached.')
    $('status').className = 'error'
  }
  isPolling = false
  if (isWanted) {
    isWanted = false
    poll()
  }
}

// After an event: soon, but at most four times a second.
let timer = null
function soon () {
  timer ??= setTimeout(() => { timer = null; poll() }, Math.max(0, 250 - (Date.now() - lastPoll)))
}

async function refresh () {
  if (phases.length === 0) {
    phases = (await api('GET', 'phases')).phases
    showPhases()
  }
  const [brokers, controller, topics, groups, transactions, holds, faults, clock] = await Promise.all([
    api('GET', 'brokers'), api('GET', 'controller'), api('GET', 'topics?states=true').catch(noBroker), api('GET', 'groups'),
    api('GET', 'transactions'), api('GET', 'holds'), api('GET', 'faults'), api('GET', 'clock').catch(() => null),
  ])
  const now = Date.now()
  noteState(controller, topics.topics, now)
  showBrokers(brokers.brokers)
  drawLegend(brokers.brokers)
  showController(controller)
  showTopics(topics.topics)
  showGroups(groups.groups, transactions.transactions)
  showHolds(holds.holds)
  showFaults(faults.faults)
  showClock(clock)
  drawTimeline(now)
  await refreshTopic(brokers.brokers)
  if (!isPaused) await refreshRequests()
  const running = brokers.brokers.filter(broker => broker.state === 'running').length
  setText($('status'), `${running} of ${brokers.brokers.length} brokers run, ${topics.topics.length} topics`)
  $('status').className = ''
}

// Without a running broker there is no metadata.
function noBroker (error) {
  if (error.status === 409) return { topics: [] }
  throw error
}

async function refreshTopic (brokers) {
  if (openTopic === null) return showTopic(null)
  try {
    showTopic(await api('GET', `topics/${encodeURIComponent(openTopic)}`), brokers)
  } catch (error) {
    if (error.status !== 404 && error.status !== 409) throw error
    openTopic = null
    showTopic(null)
  }
}

async function refreshRequests () {
  try {
    addRequests((await api('GET', requestsPath())).requests)
    if (filters.failed) hideError()
    filters.failed = false
  } catch (error) {
    if (!(error instanceof ApiError) || error.status === 401) throw error
    filters.failed = true
    showError(error)
  }
}

function showClock (clock) {
  $('clock-form').hidden = clock === null
  if (clock === null) return
  setText($('clock-now'), new Date(clock.now_ms).toISOString().slice(0, 19).replace('T', ' ') + (clock.frozen ? ' (frozen)' : ''))
  setText($('clock-freeze'), clock.frozen ? 'Resume' : 'Freeze')
}

// --- start

function onSubmit (id, work) {
  $(id).addEventListener('submit', event => {
    event.preventDefault()
    work()
  })
}

function start () {
  $('fault-effect').append(...Object.entries(EFFECTS).map(([name, [text]]) => el('option', { value: name }, text)))
  $('apis').append(...COMMON_APIS.map(name => el('option', { value: name })))
  $('errors').append(...COMMON_ERRORS.map(name => el('option', { value: name })))
  $('hold-action').append(...Object.entries(HOLD_ACTIONS).map(([name, [text]]) => el('option', { value: name }, text)))
  $('zookeeper-action').append(...Object.entries(ZOOKEEPER_ACTIONS).map(([name, text]) => el('option', { value: name }, text)))
  chooseEffect()
  chooseZooKeeperAction()
  $('zookeeper-action').addEventListener('change', chooseZooKeeperAction)
  $('topic-delete').addEventListener('click', deleteTopic)
  $('fault-effect').addEventListener('change', chooseEffect)
  $('hold-phase').addEventListener('change', describePhase)
  $('error-close').addEventListener('click', hideError)
  $('broker-add').addEventListener('click', () => act('POST', 'brokers'))
  $('reset').addEventListener('click', () => act('POST', 'reset'))
  $('requests-pause').addEventListener('click', () => {
    isPaused = !isPaused
    $('requests-pause').setAttribute('aria-pressed', String(isPaused))
  })
  $('clock-freeze').addEventListener('click', () => act('POST', $('clock-freeze').textContent === 'Resume' ? 'clock/resume' : 'clock/freeze'))
  for (const id of ['requests-clients', 'requests-errors']) $(id).addEventListener('change', chooseFilters)
  onSubmit('clock-form', () => act('POST', 'clock/advance', { ms: numberOf('clock-ms') }))
  onSubmit('move-form', () => act('POST', 'controller/move', { to: Number($('move-to').value) }))
  onSubmit('link-form', addLink)
  onSubmit('zookeeper-form', steerZooKeeper)
  onSubmit('topic-form', createTopic)
  onSubmit('partitions-form', addPartitions)
  onSubmit('hold-form', hold)
  onSubmit('fault-form', addFault)
  onSubmit('requests-form', chooseFilters)
  onSubmit('token-form', () => {
    token = $('token').value
    sessionStorage.setItem(TOKEN, token)
    $('token-form').hidden = true
    hideError()
    follow()
    poll()
  })
  follow()
  poll()
  setInterval(() => { if (!document.hidden) poll() }, POLL_MS)
}

start()
