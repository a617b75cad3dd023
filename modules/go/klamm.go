// Package klamm starts and steers a Klamm cluster, brokers and a controller that behave as Apache Kafka's, from tests in Go.
//
//	func TestRetry(t *testing.T) {
//		cluster := klamm.New(t, klamm.Options{Topics: []string{"orders:1"}})
//		cluster.MustFault(klamm.FilterBody{API: "Produce"}, klamm.EffectBody{Error: "NOT_LEADER_OR_FOLLOWER"}, 1)
//		...
//	}
package klamm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// stopTimeout is how long the brokers may take to shut down.
const stopTimeout = time.Minute

// Options say how a cluster starts.
type Options struct {
	// Brokers is their number; 3 if it is 0.
	Brokers int
	// Topics are NAME:PARTITIONS:REPLICATION_FACTOR, with configs behind.
	Topics []string
	// Config has properties of all brokers.
	Config map[string]string
	// Journal keeps a journal, for Verdict. An image needs the extras journal and quick for it: docs/containers.md.
	Journal bool
	// Arguments are more options of `klamm serve`.
	Arguments []string
	// Command is the program; else KLAMM of the environment, else the one of the venv that VIRTUAL_ENV names, else klamm on PATH.
	Command string
	// Image runs the cluster in a container of this image, such as klamm-serve, at ports that are free.
	Image string
	// Docker is the program that runs containers, also podman; docker if it is empty.
	Docker string
	// Timeout is how long the start may take; a minute if it is 0.
	Timeout time.Duration
}

// StartedCluster is a cluster in a process of its own, which ends with this one.
type StartedCluster struct {
	*Cluster
	judge []string
	stop  func() error
}

// Start starts a cluster and returns when it is ready. Its error is the line that says why it cannot start.
func Start(options Options) (started *StartedCluster, err error) {
	options.Brokers = orElse(options.Brokers, 3)
	options.Timeout = orElse(options.Timeout, time.Minute)
	command, before := options.command(), []string{}
	var in *container
	if options.Image != "" {
		in = newContainer(options)
		command, before = in.docker, in.run(options)
	}
	arguments := append(before, "serve", "--json", "--stop-with-stdin", "--log-level", "error", "--brokers", strconv.Itoa(options.Brokers))
	if in == nil {
		arguments = append(arguments, "--port", "0", "--control-port", "0")
	} else {
		arguments = append(arguments, "--control-host", "0.0.0.0", "--control-port", strconv.Itoa(controlPort))
	}
	for _, topic := range options.Topics {
		arguments = append(arguments, "--topic", topic)
	}
	for name, value := range options.Config {
		arguments = append(arguments, "--config", name+"="+value)
	}
	folder, journal, judge := "", journalInContainer, []string(nil)
	if options.Journal {
		if judge = []string{command}; in != nil {
			judge = []string{in.docker, "exec", in.name, "klamm"}
		} else if folder, err = os.MkdirTemp("", "klamm-"); err != nil {
			return nil, err
		} else {
			journal = folder
		}
		arguments = append(arguments, "--journal", journal)
		judge = append(judge, "pipeline", "check", "--quick", "--json", journal)
	}
	process, err := spawn(command, append(arguments, options.Arguments...))
	defer func() {
		if err != nil && folder != "" {
			os.RemoveAll(folder)
		}
	}()
	if err != nil {
		return nil, fmt.Errorf("klamm: cannot start: %w", err)
	}
	until := time.Now().Add(options.Timeout)
	if in != nil {
		if err = in.advertise(process, options.Brokers, until); err != nil {
			return nil, process.failed(err)
		}
	}
	line, err := process.ready(until, options.Timeout)
	if err != nil {
		return nil, process.failed(err)
	}
	token := ""
	if in != nil {
		line.Control, token = in.control, in.token
	}
	cluster := Connect(strings.Split(line.BootstrapServers, ","), line.Control, token)
	return &StartedCluster{cluster, judge, sync.OnceValue(func() error {
		if folder != "" {
			defer os.RemoveAll(folder)
		}
		process.stdin.Close()
		defer time.AfterFunc(stopTimeout, func() { _ = process.Process.Kill() }).Stop()
		return process.wait()
	})}, nil
}

func (o Options) command() string {
	if o.Command != "" {
		return o.Command
	}
	if named := os.Getenv("KLAMM"); named != "" {
		return named
	}
	if venv := os.Getenv("VIRTUAL_ENV"); venv != "" {
		return filepath.Join(venv, "bin", "klamm")
	}
	return "klamm"
}

// Stop shuts the brokers down in order. Those that do not end within a minute are killed, which is an error. A second call returns the same.
func (c *StartedCluster) Stop() error {
	return c.stop()
}

// Verdict is what the rules say of all frames up to now: whether the brokers obeyed them, and the JSON object of `klamm pipeline check`. The
// cluster needs Journal, and Klamm the extra quick.
func (c *StartedCluster) Verdict(ctx context.Context) (bool, Shown, error) {
	if c.judge == nil {
		return false, nil, errors.New("klamm: start the cluster with Journal to have verdicts")
	}
	check := exec.CommandContext(ctx, c.judge[0], c.judge[1:]...)
	var failures bytes.Buffer
	check.Stderr = &failures
	text, err := check.Output()
	if err != nil && check.ProcessState.ExitCode() != 3 {
		return false, nil, fmt.Errorf("klamm: %s: %w", strings.TrimSpace(failures.String()), err)
	}
	var details Shown
	if failed := json.Unmarshal(text, &details); failed != nil {
		return false, nil, failed
	}
	return err == nil, details, nil
}

// TestCluster is the cluster of a test. Its methods that begin with Must end the test if they fail.
type TestCluster struct {
	*StartedCluster
	t testing.TB
}

// New starts a cluster for a test, which fails if it cannot start. If the test fails, it prints what clients requested.
func New(t testing.TB, options Options) *TestCluster {
	t.Helper()
	started, err := Start(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			if text, err := started.Transcript(context.Background(), 0); err == nil {
				t.Logf("requests of clients:\n%s", text)
			}
		}
		if err := started.Stop(); err != nil {
			t.Errorf("klamm: the cluster did not stop in order: %v", err)
		}
	})
	return &TestCluster{started, t}
}

// MustFault is Fault.
func (c *TestCluster) MustFault(filter FilterBody, effect EffectBody, first int64) *Fault {
	c.t.Helper()
	return must(c, func() (*Fault, error) { return c.Fault(c.t.Context(), filter, effect, first) })
}

// MustHold is Hold.
func (c *TestCluster) MustHold(body HoldBody) *Hold {
	c.t.Helper()
	return must(c, func() (*Hold, error) { return c.Hold(c.t.Context(), body) })
}

// MustRequests is Requests.
func (c *TestCluster) MustRequests(query GetRequestsQuery) []Shown {
	c.t.Helper()
	return must(c, func() ([]Shown, error) { return c.Requests(c.t.Context(), query) })
}

func must[T any](c *TestCluster, call func() (T, error)) T {
	c.t.Helper()
	value, err := call()
	if err != nil {
		c.t.Fatal(err)
	}
	return value
}

func orElse[T comparable](value, other T) T {
	var zero T
	if value == zero {
		return other
	}
	return value
}
