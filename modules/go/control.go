package klamm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Shown is a response, as docs/control_routes.md and GET /openapi.json describe it.
type Shown = map[string]any

// Control is the control API at an address. It has a method for each route.
type Control struct {
	// URL is the address, such as http://127.0.0.1:4040.
	URL string
	// Token is what requests must bear; empty if there is none.
	Token string
	// Client sends the requests; http.DefaultClient if it is nil.
	Client *http.Client
}

// Refused is an error of the control API: it refused a request, or a wait was over.
type Refused struct {
	// Status is that of HTTP.
	Status int
	// Text is one line.
	Text string
}

func (r *Refused) Error() string { return "klamm: " + r.Text }

func (c *Control) send(ctx context.Context, method, path string, query, body any) (Shown, error) {
	address := c.URL + path
	if query != nil {
		given, err := parameters(query)
		if err != nil {
			return nil, err
		}
		address += given
	}
	var sent io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		sent = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(ctx, method, address, sent)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	if c.Token != "" {
		request.Header.Set("Authorization", "Bearer "+c.Token)
	}
	client := c.Client
	if client == nil {
		client = http.DefaultClient
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("klamm: cannot reach the control API: %w", err)
	}
	defer response.Body.Close()
	var shown Shown
	if err := json.NewDecoder(response.Body).Decode(&shown); err != nil {
		return nil, fmt.Errorf("klamm: %s is not a control API of Klamm: HTTP status %d", c.URL, response.StatusCode)
	}
	if response.StatusCode >= 400 {
		text, _ := shown["error"].(string)
		return nil, &Refused{response.StatusCode, text}
	}
	return shown, nil
}

// parameters writes the fields of a query that are set, `?a=b&c=d`.
func parameters(query any) (string, error) {
	text, err := json.Marshal(query)
	if err != nil {
		return "", err
	}
	fields := map[string]json.RawMessage{}
	if err := json.Unmarshal(text, &fields); err != nil {
		return "", err
	}
	values := url.Values{}
	for name, value := range fields {
		var named string
		if json.Unmarshal(value, &named) != nil {
			named = string(value)
		}
		values.Set(name, named)
	}
	if len(values) == 0 {
		return "", nil
	}
	return "?" + values.Encode(), nil
}

// Cluster is a cluster that can be steered, wherever it runs.
type Cluster struct {
	// BootstrapServers is HOST:PORT of each broker.
	BootstrapServers []string
	// Control has all verbs.
	Control *Control
}

// Connect returns a cluster that runs elsewhere, in a container for example.
func Connect(bootstrapServers []string, url, token string) *Cluster {
	return &Cluster{bootstrapServers, &Control{URL: strings.TrimRight(url, "/"), Token: token}}
}

// Fault is a fault that was added.
type Fault struct {
	// ID is its number.
	ID      int64
	control *Control
}

// Fault lets requests meet a fault, the first ones or all if first is 0.
func (c *Cluster) Fault(ctx context.Context, filter FilterBody, effect EffectBody, first int64) (*Fault, error) {
	body := FaultBody{Filter: &filter, Effect: effect}
	if first > 0 {
		body.First = &first
	}
	added, err := c.Control.AddFault(ctx, body)
	if err != nil {
		return nil, err
	}
	return &Fault{number(added["id"]), c.Control}, nil
}

// Hits is how many requests the fault has hit.
func (f *Fault) Hits(ctx context.Context) (int64, error) {
	shown, err := f.control.GetFault(ctx, f.ID, GetFaultQuery{})
	return number(shown["hits"]), err
}

// WaitForHits waits until the fault has hit so many requests.
func (f *Fault) WaitForHits(ctx context.Context, hits int64, timeout time.Duration) error {
	milliseconds := timeout.Milliseconds()
	_, err := f.control.GetFault(ctx, f.ID, GetFaultQuery{Hits: &hits, TimeoutMs: &milliseconds})
	return err
}

// Remove ends the fault: requests meet it no longer.
func (f *Fault) Remove(ctx context.Context) error {
	_, err := f.control.DeleteFault(ctx, f.ID)
	return err
}

// Hold is a hold of a phase.
type Hold struct {
	// ID is its number.
	ID      int64
	control *Control
}

// Hold holds a phase of docs/phases.md from now on.
func (c *Cluster) Hold(ctx context.Context, body HoldBody) (*Hold, error) {
	made, err := c.Control.AddHold(ctx, body)
	if err != nil {
		return nil, err
	}
	return &Hold{number(made["id"]), c.Control}, nil
}

// Reached waits until something is held; what it is.
func (h *Hold) Reached(ctx context.Context, timeout time.Duration) (Shown, error) {
	milliseconds := timeout.Milliseconds()
	return h.control.GetHold(ctx, h.ID, GetHoldQuery{Wait: "reached", TimeoutMs: &milliseconds})
}

// Release ends the hold; what it holds goes on.
func (h *Hold) Release(ctx context.Context) error {
	_, err := h.control.ReleaseHold(ctx, h.ID)
	return err
}

// Step lets the first that is held go on.
func (h *Hold) Step(ctx context.Context) error {
	_, err := h.control.StepHold(ctx, h.ID)
	return err
}

// Fail lets the first that is held fail with this error.
func (h *Hold) Fail(ctx context.Context, body FailBody) error {
	_, err := h.control.FailHold(ctx, h.ID, body)
	return err
}

// Crash kills the broker that is held first.
func (h *Hold) Crash(ctx context.Context) error {
	_, err := h.control.CrashHold(ctx, h.ID)
	return err
}

// Requests are the last requests that brokers have received, with their responses, oldest first.
func (c *Cluster) Requests(ctx context.Context, query GetRequestsQuery) ([]Shown, error) {
	shown, err := c.Control.GetRequests(ctx, query)
	if err != nil {
		return nil, err
	}
	return rows(shown["requests"]), nil
}

// Advance moves the clock of brokers and coordinators. Clients go on in real time.
func (c *Cluster) Advance(ctx context.Context, by time.Duration) error {
	_, err := c.Control.AdvanceClock(ctx, AdvanceBody{Ms: by.Milliseconds()})
	return err
}

// WaitForRequests waits until there are so many requests like these, and returns them.
func (c *Cluster) WaitForRequests(ctx context.Context, count int, query GetRequestsQuery, timeout time.Duration) (requests []Shown, err error) {
	err = wait(ctx, timeout, fmt.Sprintf("fewer than %d requests", count), func() (bool, error) {
		requests, err = c.Requests(ctx, query)
		return len(requests) >= count, err
	})
	return requests, err
}

// WaitForLeader waits until a broker leads a partition; any if leader is 0. It returns the leader.
func (c *Cluster) WaitForLeader(ctx context.Context, topic string, partition int, leader int64, timeout time.Duration) (now int64, err error) {
	err = wait(ctx, timeout, fmt.Sprintf("%s-%d has another leader", topic, partition), func() (bool, error) {
		shown, err := c.Control.GetTopic(ctx, topic)
		if err != nil {
			return false, err
		}
		now = -1
		if partitions := rows(shown["partitions"]); partition < len(partitions) {
			now = number(partitions[partition]["leader"])
		}
		return now > 0 && (leader == 0 || now == leader), nil
	})
	return now, err
}

// WaitForController waits until a broker is controller; any if id is 0. It returns the controller.
func (c *Cluster) WaitForController(ctx context.Context, id int64, timeout time.Duration) (now int64, err error) {
	err = wait(ctx, timeout, "another broker is controller", func() (bool, error) {
		shown, err := c.Control.GetController(ctx)
		now = number(shown["id"])
		return now > 0 && (id == 0 || now == id), err
	})
	return now, err
}

// WaitForGroup waits until a group is in a state, such as Stable, and returns it.
func (c *Cluster) WaitForGroup(ctx context.Context, group, state string, timeout time.Duration) (found Shown, err error) {
	err = wait(ctx, timeout, fmt.Sprintf("group %s is not %s", group, state), func() (bool, error) {
		shown, err := c.Control.GetGroups(ctx)
		for _, found = range rows(shown["groups"]) {
			if found["group"] == group && found["state"] == state {
				return true, nil
			}
		}
		return false, err
	})
	return found, err
}

// Reset undoes what a test did: faults, holds, pauses, stopped brokers, configs. Topics and groups stay.
func (c *Cluster) Reset(ctx context.Context) error {
	_, err := c.Control.Reset(ctx)
	return err
}

// Transcript is what clients requested after a number, one line each, the first error that is not usual marked with `>`.
func (c *Cluster) Transcript(ctx context.Context, after int64) (string, error) {
	limit := int64(200)
	requests, err := c.Requests(ctx, GetRequestsQuery{Clients: true, After: &after, Limit: &limit})
	var text strings.Builder
	first := ">"
	for _, each := range requests {
		mark, outcome := " ", "ok"
		if each["response"] == nil {
			outcome = "no response"
		} else if each["error"] != nil {
			outcome = fmt.Sprint(each["error"])
			if !slices.Contains(usualErrors, outcome) {
				mark, first = first, " "
			}
		}
		fmt.Fprintf(&text, "%s %v  broker %v  %v v%v  %v  %s\n", mark, each["at"], each["broker"], each["api"], each["version"], each["client_id"], outcome)
	}
	return text.String(), err
}

func wait(ctx context.Context, timeout time.Duration, left string, look func() (bool, error)) error {
	for until := time.Now().Add(timeout); ; {
		done, err := look()
		if done || err != nil {
			return err
		}
		if time.Now().After(until) {
			return fmt.Errorf("klamm: not within %v: %s", timeout, left)
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), errors.New(left))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func number(value any) int64 {
	found, _ := value.(float64)
	return int64(found)
}

func rows(value any) []Shown {
	list, _ := value.([]any)
	found := make([]Shown, 0, len(list))
	for _, each := range list {
		if row, ok := each.(Shown); ok {
			found = append(found, row)
		}
	}
	return found
}
