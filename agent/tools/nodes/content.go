package nodes

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/farhand/farhand/registry"
)

// Durations of recordings.
const (
	defaultRecording = 10 * time.Second
	minRecording     = time.Second
	maxRecording     = 2 * time.Minute
)

// readDuration reads how long a recording is to be: as Go writes durations, or seconds. None means the default.
func readDuration(arg json.RawMessage) (time.Duration, error) {
	if arg == nil {
		return defaultRecording, nil
	}
	text := strings.Trim(strings.TrimSpace(strings.Trim(string(arg), `"`)), " ")
	d, err := time.ParseDuration(text)
	if err != nil {
		d, err = time.ParseDuration(text + "s")
	}
	if err != nil {
		return 0, errors.New(`duration: write it as "10s", "1m30s", or in seconds`)
	}
	if d < minRecording || d > maxRecording {
		return 0, fmt.Errorf("duration: must be from %v to %v", minRecording, maxRecording)
	}
	return d, nil
}

// Bounds of what is pushed to a canvas at once.
const (
	maxLines     = 1000
	maxLineBytes = 64 << 10
	maxPush      = 256 << 10 // bytes
)

// checkLines checks JSONL: each line that is not empty is a JSON object.
func checkLines(text string) error {
	if len(text) > maxPush {
		return fmt.Errorf("jsonl: %d bytes; at most %d may be pushed at once", len(text), maxPush)
	}
	n := 0
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		n++
		parsed, err := registry.ParseJSON([]byte(line))
		switch {
		case n > maxLines:
			return fmt.Errorf("jsonl: at most %d lines may be pushed at once", maxLines)
		case len(line) > maxLineBytes:
			return fmt.Errorf("jsonl: line %d has more than %d bytes", n, maxLineBytes)
		case err != nil || !parsed.IsObject():
			return errors.New("jsonl: line " + strconv.Itoa(n) + " is no JSON object")
		}
	}
	if n == 0 && text != "" {
		return errors.New("jsonl: there is no line in it")
	}
	return nil
}
