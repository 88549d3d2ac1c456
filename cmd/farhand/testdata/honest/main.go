// Command honest calls the tool of an honest device in a loop. It is a separate program because inside the attacking
// process it would compete with the attackers for processors, and measure them instead of the pod. It runs until its
// input ends, and then prints its measurements.
package main

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"strings"
	"time"
)

const (
	pause    = 20 * time.Millisecond
	patience = 30 * time.Second
)

// report is the printed result.
type report struct {
	Took   []time.Duration `json:"took"`
	Failed []string        `json:"failed"`
}

// The arguments are the URLs to call in turn; the environment has the token.
func main() {
	ended := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(ended)
	}()
	var r report
	client := http.Client{Timeout: patience}
	for i := 0; ; i++ {
		began := time.Now()
		failure := call(&client, os.Args[1+i%(len(os.Args)-1)])
		r.Took = append(r.Took, time.Since(began))
		if failure != "" {
			r.Failed = append(r.Failed, failure)
		}
		select {
		case <-ended:
			_ = json.NewEncoder(os.Stdout).Encode(r)
			return
		case <-time.After(pause):
		}
	}
}

// call returns an error text, empty on success.
func call(client *http.Client, url string) string {
	req, err := http.NewRequest(http.MethodPost, url, strings.NewReader(`{"args":{"text":"here"}}`))
	if err != nil {
		return err.Error()
	}
	req.Header.Set("Authorization", "Bearer "+os.Getenv("HONEST_TOKEN"))
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return err.Error()
	case resp.StatusCode != http.StatusOK:
		return resp.Status + " " + string(body)
	}
	return ""
}
