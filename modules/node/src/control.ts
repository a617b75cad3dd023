/** The control API of a cluster, and what tests want of it: faults, holds, waits, and a transcript. */
import { EFFECT_FIELDS, FAULT_FIELDS, Operations, USUAL_ERRORS, type EffectBody, type FaultBody, type FilterBody, type HoldBody, type Shown } from './operations.js'

/** The control API refused a request, a wait was over, or nothing answered. The message is one line. */
export class ControlFailed extends Error {
  override name = 'ControlFailed'
}

/** A fault to add: what a request must be, what happens to it, and how often. See docs/control.md. */
export type Fault = FilterBody & EffectBody & Pick<FaultBody, 'first' | 'after' | 'probability' | 'seed'>
/** Which requests to show: all conditions must hold. `error: 'any'` is any error. */
export type Requests = NonNullable<Parameters<Operations['getRequests']>[0]>

/** The control API at an address. Each method of `Operations` is one route of it. */
export class Control extends Operations {
  constructor (readonly url: string, private readonly token?: string, private readonly timeoutMs = 60_000) {
    super()
  }

  protected async send (method: string, path: string, query: object = {}, body?: object): Promise<Shown> {
    const given = new URLSearchParams()
    for (const [name, value] of Object.entries(query)) if (value !== undefined) given.set(name, String(value))
    const address = `${this.url}${path}${given.size > 0 ? `?${given.toString()}` : ''}`
    const headers: Record<string, string> = { 'content-type': 'application/json' }
    if (this.token !== undefined) headers.authorization = `Bearer ${this.token}`
    const waitMs = 'timeout_ms' in query ? Number(query.timeout_ms ?? 0) : 0
    let response, text
    try {
      response = await fetch(address, { method, headers, body: body && JSON.stringify(body), signal: AbortSignal.timeout(this.timeoutMs + waitMs) })
      text = await response.text()
    } catch (error) {
      const { message, cause } = error as Error & { cause?: Error }
      throw new ControlFailed(`cannot reach the control API at ${this.url}: ${cause?.message || message}`)
    }
    let value: Shown
    try {
      value = JSON.parse(text) as Shown
    } catch {
      throw new ControlFailed(`${this.url} is not a control API of Klamm: HTTP status ${response.status}`)
    }
    if (!response.ok) throw new ControlFailed(value.error ?? `HTTP status ${response.status}`)
    return value
  }
}

/** A fault that was added. */
export class AddedFault {
  constructor (private readonly control: Control, readonly id: number) {}

  /** How many requests it has hit. */
  async hits (): Promise<number> {
    return (await this.control.getFault(this.id)).hits
  }

  /** Wait until it has hit so many requests. */
  async waitForHits (hits: number, timeoutMs = 10_000): Promise<void> {
    await this.control.getFault(this.id, { hits, timeout_ms: timeoutMs })
  }

  async remove (): Promise<void> {
    await this.control.deleteFault(this.id)
  }
}

/** A hold of a phase. */
export class Hold {
  constructor (private readonly control: Control, readonly id: number) {}

  /** Wait until something is held here; what it is. */
  async reached (timeoutMs = 10_000): Promise<Shown> {
    return await this.control.getHold(this.id, { wait: 'reached', timeout_ms: timeoutMs })
  }

  /** End the hold; what it holds goes on. */
  async release (): Promise<void> {
    await this.control.releaseHold(this.id)
  }

  /** Let the first that is held go on. */
  async step (): Promise<void> {
    await this.control.stepHold(this.id)
  }

  /** Let the first that is held fail with this error. */
  async fail (error?: string, message?: string): Promise<void> {
    await this.control.failHold(this.id, { ...(error !== undefined && { error }), ...(message !== undefined && { message }) })
  }

  /** Kill the broker that is held first. */
  async crash (): Promise<void> {
    await this.control.crashHold(this.id)
  }
}

/** A cluster that can be steered, wherever it runs. */
export class Cluster {
  constructor (readonly bootstrapServers: string, readonly control: Control) {}

  /** The bootstrap servers as a list, as kafkajs wants them. */
  get brokers (): string[] {
    return this.bootstrapServers.split(',')
  }

  /** Let requests meet a fault: `fault({ api: 'Produce', topic: 'orders', error: 'NOT_LEADER_OR_FOLLOWER', first: 1 })`. */
  async fault (fault: Fault): Promise<AddedFault> {
    const parts: Record<'filter' | 'effect' | 'limits', Record<string, unknown>> = { filter: {}, effect: {}, limits: {} }
    for (const [name, value] of Object.entries(fault)) {
      parts[EFFECT_FIELDS.includes(name) ? 'effect' : FAULT_FIELDS.includes(name) ? 'limits' : 'filter'][name] = value
    }
    const added = await this.control.addFault({ ...parts.limits, filter: parts.filter, effect: parts.effect })
    return new AddedFault(this.control, added.id)
  }

  /** Hold a phase of docs/phases.md: `hold('ReassignmentCaughtUp', { topic: 'orders' })`. */
  async hold (phase: string, where: Record<string, unknown> = {}, options: Omit<HoldBody, 'phase' | 'where'> = {}): Promise<Hold> {
    const made = await this.control.addHold({ phase, where, ...options })
    return new Hold(this.control, made.id)
  }

  /** The last requests that brokers have received, with their responses, oldest first. */
  async requests (which: Requests = {}): Promise<Shown[]> {
    return (await this.control.getRequests(which)).requests
  }

  /** Move the clock of brokers and coordinators. Clients go on in real time. */
  async advance (ms: number): Promise<Shown> {
    return await this.control.advanceClock({ ms })
  }

  /** Wait until there are so many requests like these; the requests. */
  async waitForRequests (count: number, which: Requests = {}, timeoutMs = 10_000): Promise<Shown[]> {
    return await this.waitFor(async () => {
      const requests = await this.requests(which)
      return requests.length >= count ? requests : undefined
    }, () => `fewer than ${count} requests ${JSON.stringify(which)}`, timeoutMs)
  }

  /** Wait until a partition has a leader: this one, or any. */
  async waitForLeader (topic: string, partition: number, leader?: number, timeoutMs = 10_000): Promise<number> {
    return await this.waitFor(async () => {
      const now = (await this.control.getTopic(topic)).partitions[partition]?.leader as number | undefined
      return now !== undefined && now >= 0 && (leader === undefined || now === leader) ? now : undefined
    }, () => `${topic}-${partition} has another leader`, timeoutMs)
  }

  /** Wait until a broker is controller: this one, or any. */
  async waitForController (id?: number, timeoutMs = 10_000): Promise<number> {
    return await this.waitFor(async () => {
      const now = (await this.control.getController()).id as number | null
      return now !== null && now > 0 && (id === undefined || now === id) ? now : undefined
    }, () => 'another broker is controller', timeoutMs)
  }

  /** Wait until a group is in a state, such as Stable. */
  async waitForGroup (group: string, state: string, timeoutMs = 10_000): Promise<Shown> {
    return await this.waitFor(async () => {
      const { groups } = await this.control.getGroups()
      return (groups as Shown[]).find(each => each.group === group && each.state === state)
    }, () => `group ${group} is not ${state}`, timeoutMs)
  }

  private async waitFor<T> (look: () => Promise<T | undefined>, left: () => string, timeoutMs: number): Promise<T> {
    for (const until = Date.now() + timeoutMs; ;) {
      const value = await look()
      if (value !== undefined) return value
      if (Date.now() >= until) throw new ControlFailed(`not within ${timeoutMs} ms: ${left()}`)
      await new Promise(resolve => setTimeout(resolve, 20))
    }
  }

  /** Undo what a test did: faults, holds, pauses, stopped brokers, configs. Topics and groups stay. */
  async reset (): Promise<Shown> {
    return await this.control.reset()
  }

  /** What clients requested since a number, one line each, the first error that is not usual marked with `>`. */
  async transcript (after = 0): Promise<string> {
    const requests = await this.requests({ clients: true, after, limit: 200 })
    const first = requests.findIndex(each => typeof each.error === 'string' && !USUAL_ERRORS.includes(each.error))
    return requests.map((each, index) => {
      const outcome = each.response === null ? 'no response' : each.error ?? 'ok'
      return `${index === first ? '>' : ' '} ${each.at}  broker ${each.broker}  ${each.api} v${each.version}  ${each.client_id ?? ''}  ${outcome}`
    }).join('\n')
  }

  /**
   * A test that leaves the cluster as it was, and that says what clients requested if it fails:
   * `test('…', cluster.test(async () => { … }))`, with node:test, Jest or another runner.
   */
  test (body: () => Promise<unknown>): () => Promise<void> {
    return async () => {
      const after = (await this.requests({ limit: 1 })).at(-1)?.number ?? 0
      try {
        await body()
      } catch (error) {
        const transcript = await this.transcript(after).catch(failure => String(failure))
        if (error instanceof Error) { // in its message: reporters print that, and not all of a stack
          const message = `${error.message}\n\nrequests of clients:\n${transcript}`
          error.stack = error.stack?.replace(error.message, () => message)
          error.message = message
        }
        await this.reset().catch(() => {}) // the test's own error says more
        throw error
      }
      await this.reset()
    }
  }
}
