/**
 * Klamm for tests in Node: start a cluster of brokers that behave as Apache Kafka's, steer it, and see what clients sent.
 *
 *     const cluster = await start({ topics: ['orders:1'] })
 *     await cluster.fault({ api: 'Produce', topic: 'orders', error: 'NOT_LEADER_OR_FOLLOWER', first: 1 })
 */
import { execFile, spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { Container, CONTROL_IN_CONTAINER, JOURNAL_IN_CONTAINER } from './container.js'
import { Cluster, Control } from './control.js'
import type { Shown } from './operations.js'

export * from './control.js'
export * from './operations.js'

/** How to start a cluster. */
export interface Options {
  /** Number of brokers; 3 if it is missing. */
  brokers?: number
  /** `NAME:PARTITIONS:REPLICATION_FACTOR`, with configs behind. */
  topics?: string[]
  /** Properties of all brokers. */
  config?: Record<string, string | number | boolean>
  /** Keep a journal, for `verdict()`. An image needs the extras journal and quick for it: docs/containers.md. */
  journal?: boolean
  /** More options of `klamm serve`. */
  options?: string[]
  /** The program; else `KLAMM` of the environment, else the one of the venv that `VIRTUAL_ENV` names, else `klamm` on PATH. */
  command?: string
  /** Run the cluster in a container of this image, such as `klamm-serve`, at ports that are free. */
  image?: string
  /** The program that runs containers, also podman; docker if it is missing. */
  docker?: string
  /** How long the start may take. */
  timeoutMs?: number
}

/** What the rules say of a journal: see docs/conformance.md. */
export interface Verdict {
  /** Whether the brokers obeyed all rules. */
  isObeyed: boolean
  /** The JSON object of `klamm pipeline check --quick --json`. */
  details: Shown
}

/** A cluster in a process of its own, which ends with this one. */
export class StartedCluster extends Cluster {
  constructor (
    bootstrapServers: string, control: Control,
    private readonly child: ChildProcess, private readonly judge: string[] | undefined, private readonly folder: string | undefined,
  ) {
    super(bootstrapServers, control)
  }

  /** What the rules say of all frames up to now. The cluster needs `journal: true`, and Klamm the extra `quick`. */
  async verdict (): Promise<Verdict> {
    if (this.judge === undefined) throw new Error('start the cluster with journal: true to have verdicts')
    const [program, ...given] = this.judge
    return await new Promise((resolve, reject) => {
      execFile(program!, given, { maxBuffer: 1 << 28 }, (error, stdout, stderr) => {
        if (error === null || error.code === 3) resolve({ isObeyed: error === null, details: JSON.parse(stdout) as Shown })
        else reject(new Error(stderr.trim() || error.message))
      })
    })
  }

  /** Shut the brokers down in order. Those that do not end in time are killed, and it rejects. */
  async stop (timeoutMs = 60_000): Promise<void> {
    try {
      if (this.child.exitCode !== null || this.child.signalCode !== null) return
      const exit = once(this.child, 'exit')
      this.child.stdin?.end()
      const timer = setTimeout(() => this.child.kill('SIGKILL'), timeoutMs)
      await exit
      clearTimeout(timer)
      if (this.child.signalCode === 'SIGKILL') throw new Error(`klamm did not stop within ${timeoutMs} ms`)
    } finally {
      if (this.folder !== undefined) await rm(this.folder, { recursive: true, force: true })
    }
  }

  async [Symbol.asyncDispose] (): Promise<void> {
    await this.stop()
  }
}

/** Start a cluster and return when it is ready. Rejects with the line that says why it cannot start. */
export async function start (options: Options = {}): Promise<StartedCluster> {
  const venv = process.env.VIRTUAL_ENV
  const command = options.command ?? process.env.KLAMM ?? (venv === undefined ? 'klamm' : join(venv, 'bin', 'klamm'))
  const brokers = options.brokers ?? 3
  const timeoutMs = options.timeoutMs ?? 60_000
  const container = options.image === undefined ? undefined : new Container(options.image, options.docker ?? 'docker', brokers)
  const folder = options.journal === true && container === undefined ? await mkdtemp(join(tmpdir(), 'klamm-')) : undefined
  const journal = options.journal === true ? folder ?? JOURNAL_IN_CONTAINER : undefined
  const given = ['serve', '--json', '--stop-with-stdin', '--log-level', 'error', '--brokers', String(brokers)]
  given.push(...container === undefined ? ['--port', '0', '--control-port', '0'] : CONTROL_IN_CONTAINER)
  for (const topic of options.topics ?? []) given.push('--topic', topic)
  for (const [name, value] of Object.entries(options.config ?? {})) given.push('--config', `${name}=${value}`)
  if (journal !== undefined) given.push('--journal', journal)
  given.push(...options.options ?? [])
  const child = container === undefined ? spawn(command, given) : spawn(container.docker, [...container.run(), ...given])
  let errors = ''
  child.stderr.on('data', data => { errors = (errors + String(data)).slice(-4000) })
  child.stdin.on('error', () => {})
  try {
    const first = firstLine(child, timeoutMs, () => errors)
    if (container !== undefined) await Promise.race([first, container.advertise(child)])
    const line = JSON.parse(await first) as Shown
    if (line.error !== undefined) throw new Error(`klamm: ${line.error}`)
    const control = new Control(container?.control ?? line.control, container?.token)
    const judge = journal && [...container?.exec() ?? [command], 'pipeline', 'check', '--quick', '--json', journal]
    return new StartedCluster(line.bootstrap_servers, control, child, judge || undefined, folder)
  } catch (error) {
    child.stdin.end() // a container ends with it
    if (child.kill('SIGKILL')) await once(child, 'exit') // it writes no more to the journal
    if (folder !== undefined) await rm(folder, { recursive: true, force: true })
    throw error
  }
}

/** A cluster that runs elsewhere, in a container for example. `control` is the address of its control API. */
export function connect (bootstrapServers: string, control: string, token?: string): Cluster {
  return new Cluster(bootstrapServers, new Control(control, token))
}

async function firstLine (child: ChildProcess, timeoutMs: number, errors: () => string): Promise<string> {
  return await new Promise((resolve, reject) => {
    const timer = setTimeout(() => { reject(new Error(`klamm is not ready within ${timeoutMs} ms. ${errors()}`)) }, timeoutMs)
    const end = (act: () => void): void => { clearTimeout(timer); act() }
    createInterface({ input: child.stdout! }).once('line', line => { end(() => { resolve(line) }) })
    child.once('error', error => { end(() => { reject(new Error(`cannot start klamm: ${error.message}`)) }) })
    child.once('close', code => { end(() => { reject(new Error(errors().trim() || `klamm has ended with exit code ${code}`)) }) })
  })
}
