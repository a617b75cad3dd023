/** A container with `klamm serve`, whose ports are chosen when it starts. Its stdin says where clients find the brokers; its end stops it. */
import { execFile, type ChildProcess } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import { promisify } from 'node:util'

const CLIENT_PORT = 9092
const CONTROL_PORT = 9090
const FROM_STDIN = 'read -r KLAMM_ADVERTISED KLAMM_CONTROL_TOKEN && export KLAMM_ADVERTISED KLAMM_CONTROL_TOKEN && exec klamm "$@"'
const execute = promisify(execFile)

/** Options of `klamm serve` that open the control API to this machine. */
export const CONTROL_IN_CONTAINER = ['--control-host', '0.0.0.0', '--control-port', String(CONTROL_PORT)]

/** Where an image keeps a journal. */
export const JOURNAL_IN_CONTAINER = '/lake'

export class Container {
  readonly token = randomUUID()
  control: string | undefined
  private readonly name = `klamm-${randomUUID()}`
  private readonly ports: number[]

  constructor (private readonly image: string, readonly docker: string, brokers: number) {
    this.ports = Array.from({ length: brokers }, (_, index) => CLIENT_PORT + index)
  }

  /** The arguments before those of Klamm. */
  run (): string[] {
    const published = [...this.ports, CONTROL_PORT].flatMap(port => ['--publish', `127.0.0.1::${port}`])
    const options = ['--rm', '--interactive', '--name', this.name, '--entrypoint', 'sh']
    return ['run', ...options, ...published, this.image, '-c', FROM_STDIN, 'klamm']
  }

  /** The command that is `klamm` in the container. */
  exec (): string[] {
    return [this.docker, 'exec', this.name, 'klamm']
  }

  /** Tell Klamm where clients find the brokers, as soon as the container has ports. Returns too if it ends. */
  async advertise (child: ChildProcess): Promise<void> {
    while (child.exitCode === null && child.signalCode === null && !child.stdin!.writableEnded) {
      try {
        const addresses = await Promise.all(this.ports.map(async port => await this.published(port)))
        this.control = `http://${await this.published(CONTROL_PORT)}`
        child.stdin!.write(`${addresses.join(',')} ${this.token}\n`)
        return
      } catch {
        await new Promise(resolve => setTimeout(resolve, 50)) // it is not running yet
      }
    }
  }

  private async published (port: number): Promise<string> {
    const { stdout } = await execute(this.docker, ['port', this.name, String(port)])
    return `127.0.0.1:${/:(\d+)\s*$/.exec(stdout)![1]}`
  }
}
