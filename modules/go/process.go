package klamm

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"
)

// process is `klamm serve`, or a container with it. It stops when its stdin ends, so also when this process is killed.
type process struct {
	*exec.Cmd
	stdin  io.WriteCloser
	stderr *bytes.Buffer
	first  chan string
	wait   func() error
}

// firstLine is the line that `klamm serve --json` prints when it is ready.
type firstLine struct {
	BootstrapServers string `json:"bootstrap_servers"`
	Control          string
	Error            string
}

func spawn(command string, arguments []string) (*process, error) {
	p := &process{Cmd: exec.Command(command, arguments...), stderr: &bytes.Buffer{}, first: make(chan string, 1)}
	p.WaitDelay = 5 * time.Second // a child of it may have its stderr
	p.wait = sync.OnceValue(p.Wait)
	p.Stderr = p.stderr
	var err error
	if p.stdin, err = p.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := p.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.Start(); err != nil {
		return nil, err
	}
	go func() {
		reader := bufio.NewReader(stdout)
		line, _ := reader.ReadString('\n')
		p.first <- line
		_, _ = io.Copy(io.Discard, reader) // a full pipe would stop it
	}()
	return p, nil
}

// ready waits for the first line.
func (p *process) ready(until time.Time, timeout time.Duration) (line firstLine, err error) {
	select {
	case text := <-p.first:
		if json.Unmarshal([]byte(text), &line) != nil {
			return line, errNoJSON
		}
		if line.Error != "" {
			return line, errors.New("klamm: " + line.Error)
		}
		return line, nil
	case <-time.After(time.Until(until)):
		return line, fmt.Errorf("klamm: not ready within %v", timeout)
	}
}

var errNoJSON = errors.New("no JSON")

// failed ends the process and returns why it could not start.
func (p *process) failed(err error) error {
	p.stdin.Close()
	_ = p.Process.Kill()
	ended := p.wait() // then stderr is complete
	if err != errNoJSON {
		return err
	}
	if text := strings.TrimSpace(p.stderr.String()); text != "" {
		return errors.New("klamm: " + text)
	}
	return fmt.Errorf("klamm: %s has ended, or does not print JSON: %v", p.Path, ended)
}

const (
	clientPort  = 9092
	controlPort = 9090
	// journalInContainer is where an image keeps a journal.
	journalInContainer = "/lake"
	// fromStdin starts Klamm when the first line of stdin says where clients find the brokers, and the token of the control API.
	fromStdin = `read -r KLAMM_ADVERTISED KLAMM_CONTROL_TOKEN && export KLAMM_ADVERTISED KLAMM_CONTROL_TOKEN && exec klamm "$@"`
)

// container is a container whose ports are chosen when it starts.
type container struct {
	docker, name, token, control string
}

func newContainer(options Options) *container {
	return &container{docker: orElse(options.Docker, "docker"), name: "klamm-" + strings.ToLower(rand.Text()), token: rand.Text()}
}

// run returns the arguments before those of Klamm.
func (c *container) run(options Options) []string {
	arguments := []string{"run", "--rm", "--interactive", "--name", c.name, "--entrypoint", "sh"}
	for port := clientPort; port < clientPort+options.Brokers; port++ {
		arguments = append(arguments, "--publish", fmt.Sprintf("127.0.0.1::%d", port))
	}
	return append(arguments, "--publish", fmt.Sprintf("127.0.0.1::%d", controlPort), options.Image, "-c", fromStdin, "klamm")
}

// advertise waits for the ports and tells Klamm.
func (c *container) advertise(p *process, brokers int, until time.Time) error {
	var addresses []string
	for port := clientPort; len(addresses) < brokers; {
		address, err := c.published(port)
		if err == nil {
			addresses, port = append(addresses, address), port+1
			continue
		}
		select {
		case <-p.first:
			return errNoJSON
		case <-time.After(50 * time.Millisecond):
			if time.Now().After(until) {
				return fmt.Errorf("klamm: the container has no ports: %w", err)
			}
		}
	}
	control, err := c.published(controlPort)
	if err != nil {
		return err
	}
	c.control = "http://" + control
	_, err = fmt.Fprintln(p.stdin, strings.Join(addresses, ","), c.token)
	return err
}

// published is where a port of the container is found.
func (c *container) published(port int) (string, error) {
	text, err := exec.Command(c.docker, "port", c.name, strconv.Itoa(port)).Output()
	if err != nil {
		return "", err
	}
	_, found, err := net.SplitHostPort(strings.TrimSpace(string(text)))
	return "127.0.0.1:" + found, err
}
