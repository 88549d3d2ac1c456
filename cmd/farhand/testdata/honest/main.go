// Command honest makes the requests of an honest tenant in a loop. It is a separate program because inside the
// attacking process it would compete with the attackers for processors, and measure them instead of the pod. It runs
// until its input ends, and then prints its measurements.
//
// The argument is a file of asks in JSON. In the environment, HONEST_TOKEN is the bearer token, HONEST_ROUNDS how often
// all asks are made at least, and HONEST_NETWORK, if set, three bytes of an address such as "127.0.1": each connection
// then comes from the next address there, and serves one request.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"
)

const (
	pause    = 20 * time.Millisecond
	patience = 30 * time.Second
)

// ask is requests that follow each other.
type ask struct {
	Name  string `json:"name"`
	Steps []step `json:"steps"`
}

// step is one request. In its URL and body {{name}} is the field of that name of the answers before it, and {{n}} the
// number of the round.
type step struct {
	Method string            `json:"method"`
	URL    string            `json:"url"`
	Body   string            `json:"body,omitempty"`
	Header map[string]string `json:"header,omitempty"`
	Status int               `json:"status,omitempty"` // the wanted one; zero: 200 to 299
	Leaves bool              `json:"leaves,omitempty"` // ends the connection when it has the status
}

// made is a request that was made.
type made struct {
	Ask    string        `json:"ask"`
	Took   time.Duration `json:"took"`
	Failed string        `json:"failed,omitempty"`
}

func main() {
	asks, rounds, err := given()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	ended := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(ended)
	}()
	client := newClient(os.Getenv("HONEST_NETWORK"))
	all := []made{} // printed as a list
	for n := 0; ; n++ {
		for _, a := range asks {
			all = append(all, a.make(client, n)...)
			select {
			case <-ended:
				if n >= rounds {
					_ = json.NewEncoder(os.Stdout).Encode(all)
					return
				}
			case <-time.After(pause):
			}
		}
	}
}

// given reads the argument and the environment.
func given() (asks []ask, rounds int, err error) {
	text, err := os.ReadFile(os.Args[1])
	if err == nil {
		err = json.Unmarshal(text, &asks)
	}
	if least := os.Getenv("HONEST_ROUNDS"); err == nil && least != "" {
		rounds, err = strconv.Atoi(least)
	}
	if err == nil && len(asks) == 0 {
		err = fmt.Errorf("%s has no asks", os.Args[1])
	}
	return asks, rounds, err
}

// newClient returns a client that connects from the addresses of a network, if one is given.
func newClient(network string) *http.Client {
	client := &http.Client{Timeout: patience}
	if network == "" {
		return client
	}
	dialed := 0
	client.Transport = &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, kind, addr string) (net.Conn, error) {
			dialed++ // one request at a time
			from := net.ParseIP(network + "." + strconv.Itoa(1+dialed%250))
			return (&net.Dialer{LocalAddr: &net.TCPAddr{IP: from}}).DialContext(ctx, kind, addr)
		}}
	return client
}

// make makes the requests of an ask until one fails.
func (a ask) make(client *http.Client, n int) (all []made) {
	known := map[string]any{"n": n}
	for _, s := range a.Steps {
		began := time.Now()
		failed := s.make(client, known)
		all = append(all, made{Ask: a.Name, Took: time.Since(began), Failed: failed})
		if failed != "" {
			break
		}
	}
	return all
}

// make makes a request, and adds the fields of its answer to what is known. It returns an error text, empty on success.
func (s step) make(client *http.Client, known map[string]any) string {
	url := filled(s.URL, known)
	req, err := http.NewRequest(s.Method, url, strings.NewReader(filled(s.Body, known)))
	if err != nil {
		return err.Error()
	}
	req.Header.Set("Authorization", "Bearer "+os.Getenv("HONEST_TOKEN"))
	req.Header.Set("Content-Type", "application/json")
	for name, value := range s.Header {
		req.Header.Set(name, value)
	}
	resp, err := client.Do(req)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	var body []byte
	if resp.StatusCode != s.Status || !s.Leaves {
		if body, err = io.ReadAll(resp.Body); err != nil {
			return s.Method + " " + url + ": " + err.Error()
		}
	}
	if resp.StatusCode != s.Status && (s.Status != 0 || resp.StatusCode/100 != 2) ||
		strings.Contains(string(body), `"success":false`) {
		return fmt.Sprintf("%s %s: %s %.500s", s.Method, url, resp.Status, body)
	}
	_ = json.Unmarshal(body, &known) // not all answers are JSON
	return ""
}

var field = regexp.MustCompile(`\{\{(\w+)\}\}`)

// filled puts known fields into a text.
func filled(text string, known map[string]any) string {
	return field.ReplaceAllStringFunc(text, func(name string) string {
		return fmt.Sprint(known[strings.Trim(name, "{}")])
	})
}
