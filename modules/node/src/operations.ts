// Made by `python -m klamm.distributions.modules` from the table of verbs; do not edit.

/** A response, as docs/control_routes.md and GET /openapi.json describe it. */
// eslint-disable-next-line @typescript-eslint/no-explicit-any
export type Shown = Record<string, any>
type Value = string | number | boolean

/** Errors that every client meets, and goes on. */
export const USUAL_ERRORS: ReadonlyArray<string> = ['COORDINATOR_LOAD_IN_PROGRESS', 'COORDINATOR_NOT_AVAILABLE', 'FETCH_SESSION_ID_NOT_FOUND', 'LEADER_NOT_AVAILABLE', 'MEMBER_ID_REQUIRED', 'REBALANCE_IN_PROGRESS', 'UNSUPPORTED_VERSION']

/** A hold of phases. The first `nth` - 1 phases that match pass; then `count` are held, without it all until the hold is released. With `crash` the broker that reaches such a phase is killed there, and its ZooKeeper session ends; `count` is 1 unless it is given. With `fail` what reaches it fails with this error at once, with `delay_ms` it goes on after this time. */
export interface HoldBody {
  phase: string
  where?: Record<string, unknown>
  count?: number | null
  nth?: number
  crash?: boolean
  fail?: string | number | null
  delay_ms?: number | null
}

/** The error with which a held event fails. */
export interface FailBody {
  error?: string | number
  message?: string | null
}

/** A fault. */
export interface FaultBody {
  filter?: FilterBody
  effect: EffectBody
  first?: number | null
  after?: number
  probability?: number
  seed?: number
}

export const FAULT_FIELDS: ReadonlyArray<string> = ['filter', 'effect', 'first', 'after', 'probability', 'seed']

/** Which requests a fault is about; what is missing is any. Texts may end with `*`. A slow disk is about operations of logs: `broker`, `topic`, `partition`, `disk` (the operation) and `log_dir` say which. */
export interface FilterBody {
  api?: string | number | null
  versions?: [number, number] | null
  broker?: number | null
  from_broker?: number | null
  client_id?: string | null
  principal?: string | null
  topic?: string | null
  topic_id?: string | null
  partition?: number | null
  group?: string | null
  transactional_id?: string | null
  direction?: 'request' | 'response'
  disk?: 'append' | 'flush' | 'read' | null
  log_dir?: string | null
  while?: WhileBody | null
}

/** A condition: while `hold` holds something, any hold holds this `phase`, `fault` exists, or `broker` has this `state`. */
export interface WhileBody {
  hold?: number | null
  phase?: string | null
  fault?: number | null
  broker?: number | null
  state?: 'controller' | 'down' | 'paused' | 'running' | null
}

/** What a fault does: one of these, and `delay_ms` with it or alone. `values` gives fields of the response other values, by path, such as `topics.partitions.leaderId`; see docs/control.md. */
export interface EffectBody {
  error?: string | number | null
  message?: string | null
  delay_ms?: number
  drop?: boolean
  close?: 'after' | 'amid' | 'before' | null
  corrupt?: boolean
  truncate?: number | null
  correlation_id?: number | null
  lose_response?: boolean
  throttle_time_ms?: number | null
  values?: Record<string, unknown> | null
  unknown_tags?: boolean
  slow_disk_ms?: number | null
}

export const EFFECT_FIELDS: ReadonlyArray<string> = ['error', 'message', 'delay_ms', 'drop', 'close', 'corrupt', 'truncate', 'correlation_id', 'lose_response', 'throttle_time_ms', 'values', 'unknown_tags', 'slow_disk_ms']

/** One more broker, with these configs besides those of all brokers. */
export interface NewBrokerBody {
  config?: Record<string, string>
}

/** How a broker is stopped: with `lose_log` its logs are gone. */
export interface StopBody {
  lose_log?: boolean
}

/** How a broker is killed: with `expire` its ZooKeeper session ends at once; with `lose_log` its logs are gone. */
export interface KillBody {
  expire?: boolean
  lose_log?: boolean
}

/** The broker that becomes controller; any other than the present one without `to`. */
export interface MoveBody {
  to?: number | null
}

/** A topic to create. `replicas` has the brokers of each partition, in place of the two numbers. */
export interface TopicBody {
  name: string
  partitions?: number | null
  replication_factor?: number | null
  replicas?: number[][] | null
  configs?: Record<string, string>
}

/** How many partitions a topic is to have. `replicas` has the brokers of each new one. */
export interface PartitionsBody {
  partitions: number
  replicas?: number[][] | null
}

/** Which member of a group; all without it. */
export interface MemberBody {
  member?: string | null
}

/** A broker. */
export interface BrokerBody {
  broker: number
}

/** A broker whose requests to ZooKeeper wait this long; 0 ends that. */
export interface ZooKeeperDelayBody {
  broker: number
  ms: number
}

/** Which leaders that wait in recovery (KIP-704) go on: all, those of a topic, or that of one partition. */
export interface RecoveryBody {
  topic?: string | null
  partition?: number | null
}

/** The level of a finalized feature. */
export interface FeatureBody {
  level: number
}

/** The cluster id that clients see; without it the real one. */
export interface ClusterIdBody {
  id?: string | null
}

/** What happens to requests from one broker to another: nothing arrives (`cut`), or it arrives late. */
export interface LinkBody {
  from_broker: number
  to_broker: number
  cut?: boolean
  delay_ms?: number
  both?: boolean
}

/** A time in milliseconds. With `step_ms` it passes in steps; between them all that are alive are heard (`control/heartbeats.py`). */
export interface AdvanceBody {
  ms: number
  step_ms?: number | null
}

/** One method for each operation of the control API. */
export abstract class Operations {
  protected abstract send (method: string, path: string, query?: Record<string, Value | undefined>, body?: object): Promise<Shown>

  /** List all phases, with their fields. */
  getPhases (): Promise<Shown> {
    return this.send('GET', '/phases')
  }

  /** List all holds. */
  getHolds (): Promise<Shown> {
    return this.send('GET', '/holds')
  }

  /** Hold phases from now on. */
  addHold (body: HoldBody): Promise<Shown> {
    return this.send('POST', '/holds', undefined, body)
  }

  /** End all holds. */
  deleteHolds (): Promise<Shown> {
    return this.send('DELETE', '/holds')
  }

  /** A hold; wait=reached waits until it holds something. */
  getHold (number: number, query: { wait?: string, timeout_ms?: number } = {}): Promise<Shown> {
    return this.send('GET', `/holds/${encodeURIComponent(number)}`, query)
  }

  /** End a hold. */
  deleteHold (number: number): Promise<Shown> {
    return this.send('DELETE', `/holds/${encodeURIComponent(number)}`)
  }

  /** End a hold; what it holds goes on. */
  releaseHold (number: number): Promise<Shown> {
    return this.send('POST', `/holds/${encodeURIComponent(number)}/release`)
  }

  /** Let the first that is held go on. */
  stepHold (number: number): Promise<Shown> {
    return this.send('POST', `/holds/${encodeURIComponent(number)}/step`)
  }

  /** Let the first that is held fail. */
  failHold (number: number, body: FailBody = {}): Promise<Shown> {
    return this.send('POST', `/holds/${encodeURIComponent(number)}/fail`, undefined, body)
  }

  /** Kill the broker that is held first. */
  crashHold (number: number): Promise<Shown> {
    return this.send('POST', `/holds/${encodeURIComponent(number)}/crash`)
  }

  /** List all faults. */
  getFaults (): Promise<Shown> {
    return this.send('GET', '/faults')
  }

  /** Add a fault. */
  addFault (body: FaultBody): Promise<Shown> {
    return this.send('POST', '/faults', undefined, body)
  }

  /** Remove all faults. */
  deleteFaults (): Promise<Shown> {
    return this.send('DELETE', '/faults')
  }

  /** A fault; hits=N waits until it has this number. */
  getFault (number: number, query: { hits?: number, timeout_ms?: number } = {}): Promise<Shown> {
    return this.send('GET', `/faults/${encodeURIComponent(number)}`, query)
  }

  /** Remove a fault. */
  deleteFault (number: number): Promise<Shown> {
    return this.send('DELETE', `/faults/${encodeURIComponent(number)}`)
  }

  /** The last requests and their responses, decoded, oldest first. */
  getRequests (query: { api?: string, client_id?: string, topic?: string, group?: string, broker?: number, error?: string, clients?: boolean, after?: number, limit?: number } = {}): Promise<Shown> {
    return this.send('GET', '/requests', query)
  }

  /** List all brokers. */
  getBrokers (): Promise<Shown> {
    return this.send('GET', '/brokers')
  }

  /** Start one more broker. */
  addBroker (body: NewBrokerBody = {}): Promise<Shown> {
    return this.send('POST', '/brokers', undefined, body)
  }

  /** A broker. */
  getBroker (broker: number): Promise<Shown> {
    return this.send('GET', `/brokers/${encodeURIComponent(broker)}`)
  }

  /** Stop a broker with a controlled shutdown. */
  stopBroker (broker: number, body: StopBody = {}): Promise<Shown> {
    return this.send('POST', `/brokers/${encodeURIComponent(broker)}/stop`, undefined, body)
  }

  /** End a broker as kill -9 does. */
  killBroker (broker: number, body: KillBody = {}): Promise<Shown> {
    return this.send('POST', `/brokers/${encodeURIComponent(broker)}/kill`, undefined, body)
  }

  /** Start a broker that does not run. */
  startBroker (broker: number): Promise<Shown> {
    return this.send('POST', `/brokers/${encodeURIComponent(broker)}/start`)
  }

  /** Stop a broker and start it again. */
  restartBroker (broker: number, body: StopBody = {}): Promise<Shown> {
    return this.send('POST', `/brokers/${encodeURIComponent(broker)}/restart`, undefined, body)
  }

  /** Freeze a broker, as SIGSTOP does. */
  pauseBroker (broker: number): Promise<Shown> {
    return this.send('POST', `/brokers/${encodeURIComponent(broker)}/pause`)
  }

  /** Let a frozen broker go on. */
  resumeBroker (broker: number): Promise<Shown> {
    return this.send('POST', `/brokers/${encodeURIComponent(broker)}/resume`)
  }

  /** The active controller. */
  getController (): Promise<Shown> {
    return this.send('GET', '/controller')
  }

  /** Make a broker the controller. */
  moveController (body: MoveBody = {}): Promise<Shown> {
    return this.send('POST', '/controller/move', undefined, body)
  }

  /** Let another broker become controller. */
  resignController (): Promise<Shown> {
    return this.send('POST', '/controller/resign')
  }

  /** List all topics; states=true adds leader, ISR and replicas of each partition. */
  getTopics (query: { states?: boolean } = {}): Promise<Shown> {
    return this.send('GET', '/topics', query)
  }

  /** Create a topic. */
  createTopic (body: TopicBody): Promise<Shown> {
    return this.send('POST', '/topics', undefined, body)
  }

  /** Delete a topic. */
  deleteTopic (name: string): Promise<Shown> {
    return this.send('DELETE', `/topics/${encodeURIComponent(name)}`)
  }

  /** A topic as ZooKeeper and each broker see it. */
  getTopic (name: string): Promise<Shown> {
    return this.send('GET', `/topics/${encodeURIComponent(name)}`)
  }

  /** Let a topic have more partitions. */
  addPartitions (name: string, body: PartitionsBody): Promise<Shown> {
    return this.send('POST', `/topics/${encodeURIComponent(name)}/partitions`, undefined, body)
  }

  /** List all groups. */
  getGroups (): Promise<Shown> {
    return this.send('GET', '/groups')
  }

  /** A group. */
  getGroup (name: string): Promise<Shown> {
    return this.send('GET', `/groups/${encodeURIComponent(name)}`)
  }

  /** End the session of one member of a group, or of all. */
  expireMembers (name: string, body: MemberBody = {}): Promise<Shown> {
    return this.send('POST', `/groups/${encodeURIComponent(name)}/expire`, undefined, body)
  }

  /** Let a group rebalance. */
  rebalanceGroup (name: string): Promise<Shown> {
    return this.send('POST', `/groups/${encodeURIComponent(name)}/rebalance`)
  }

  /** List all transactional ids. */
  getTransactions (): Promise<Shown> {
    return this.send('GET', '/transactions')
  }

  /** A transactional id. */
  getTransaction (name: string): Promise<Shown> {
    return this.send('GET', `/transactions/${encodeURIComponent(name)}`)
  }

  /** Let the open transaction of an id time out: it is aborted. */
  expireTransaction (name: string): Promise<Shown> {
    return this.send('POST', `/transactions/${encodeURIComponent(name)}/expire`)
  }

  /** End the ZooKeeper session of a broker. */
  expireSession (body: BrokerBody): Promise<Shown> {
    return this.send('POST', '/zookeeper/expire', undefined, body)
  }

  /** Let a broker lose its connection to ZooKeeper until it is restored. */
  cutZooKeeper (body: BrokerBody): Promise<Shown> {
    return this.send('POST', '/zookeeper/cut', undefined, body)
  }

  /** Let a broker connect to ZooKeeper again. */
  restoreZooKeeper (body: BrokerBody): Promise<Shown> {
    return this.send('POST', '/zookeeper/restore', undefined, body)
  }

  /** Let requests of a broker to ZooKeeper wait. */
  delayZooKeeper (body: ZooKeeperDelayBody): Promise<Shown> {
    return this.send('POST', '/zookeeper/delay', undefined, body)
  }

  /** List leaders that wait to be released from recovery (KIP-704). */
  getRecovering (): Promise<Shown> {
    return this.send('GET', '/recovering')
  }

  /** Release leaders that wait in recovery: all, of a topic, or of a partition. */
  releaseRecovery (body: RecoveryBody = {}): Promise<Shown> {
    return this.send('POST', '/recovering/release', undefined, body)
  }

  /** The finalized features, as each broker shows them. */
  getFeatures (): Promise<Shown> {
    return this.send('GET', '/features')
  }

  /** Set the level of a feature while clients run; 0 removes it. */
  setFeature (name: string, body: FeatureBody): Promise<Shown> {
    return this.send('POST', `/features/${encodeURIComponent(name)}`, undefined, body)
  }

  /** Let the brokers show another cluster id to clients, or the real one again. */
  showClusterId (body: ClusterIdBody = {}): Promise<Shown> {
    return this.send('POST', '/cluster-id', undefined, body)
  }

  /** Wait until all brokers have processed the last changes of configs, users, quotas and ACLs. */
  waitForConfigs (query: { timeout_ms?: number } = {}): Promise<Shown> {
    return this.send('GET', '/configs/processed', query)
  }

  /** Cut or slow what brokers send each other, as faults. */
  addLink (body: LinkBody): Promise<Shown> {
    return this.send('POST', '/links', undefined, body)
  }

  /** The time of the brokers. */
  getClock (): Promise<Shown> {
    return this.send('GET', '/clock')
  }

  /** Advance the clock at once, or in steps with heartbeats between them. */
  advanceClock (body: AdvanceBody): Promise<Shown> {
    return this.send('POST', '/clock/advance', undefined, body)
  }

  /** Let time pass only by advance. */
  freezeClock (): Promise<Shown> {
    return this.send('POST', '/clock/freeze')
  }

  /** Let real time pass again. */
  resumeClock (): Promise<Shown> {
    return this.send('POST', '/clock/resume')
  }

  /** Undo faults, holds, stops, and changes of configs of brokers, users, quotas and ACLs; wait until all is whole. */
  reset (): Promise<Shown> {
    return this.send('POST', '/reset')
  }
}
