package bench

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Found has the conditions of calls that determine their cost, from the pods' counters before and after a run. A share
// is between 0 and 1; it is also 0 if there was nothing to count.
type Found struct {
	Remembered         float64 `json:"routes_remembered"`     // share of the calls whose route needed no read
	Together           float64 `json:"acknowledged_together"` // share of acknowledgements sent with another frame
	EnvelopesPerPacket float64 `json:"envelopes_per_packet"`  // of the messages to other pods that carry calls
	RepliesPerPacket   float64 `json:"replies_per_packet"`    // of those that carry answers
}

// Text renders it. A nil Found is of pods that do not report counters.
func (f *Found) Text() string {
	if f == nil {
		return "-"
	}
	const format = "routes remembered %.1f %%, acknowledgements together %.0f %%, a packet: %.1f calls, %.1f answers"
	return fmt.Sprintf(format,
		f.Remembered*100, f.Together*100, f.EnvelopesPerPacket, f.RepliesPerPacket)
}

// counters are metrics summed over pods, by their exported names with labels.
type counters map[string]float64

// metricsTimeout bounds the request for a pod's metrics.
const metricsTimeout = 10 * time.Second

// readCounters reads the metrics of a side's pods. It returns nil if one of them does not report them.
func (s *Side) readCounters(ctx context.Context) counters {
	all := make(counters)
	for _, pod := range s.Pods {
		if err := all.add(ctx, pod, s.Token); err != nil {
			return nil
		}
	}
	return all
}

func (c counters) add(ctx context.Context, pod, token string) error {
	ctx, cancel := context.WithTimeout(ctx, metricsTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, pod+"/metrics", nil)
	if err != nil {
		return err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s/metrics: %s", pod, resp.Status)
	}
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		name, text, ok := strings.Cut(lines.Text(), " ")
		if value, err := strconv.ParseFloat(text, 64); ok && err == nil && !strings.HasPrefix(name, "#") {
			c[name] += value
		}
	}
	return lines.Err()
}

// found returns the Found between two readings, or nil unless both succeeded.
func found(before, after counters) *Found {
	if before == nil || after == nil {
		return nil
	}
	grown := func(name string) float64 { return after[name] - before[name] }
	share := func(part, rest string) float64 { return ratio(grown(part), grown(part)+grown(rest)) }
	packed := func(queue string) float64 {
		return ratio(grown(`farhand_bus_sent_messages_total{queue="`+queue+`"}`),
			grown(`farhand_bus_sent_packets_total{queue="`+queue+`"}`))
	}
	return &Found{
		Remembered: share(`farhand_routes_total{from="memory"}`, `farhand_routes_total{from="store"}`),
		Together: share(`farhand_acknowledgements_total{written="together"}`,
			`farhand_acknowledgements_total{written="alone"}`),
		EnvelopesPerPacket: packed("envelopes"), RepliesPerPacket: packed("replies"),
	}
}

// ratio returns a/b, or 0 if b is 0.
func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

func medianFound(runs []Figures) *Found {
	for _, r := range runs {
		if r.Found == nil {
			return nil
		}
	}
	return &Found{
		Remembered:         MedianOf(runs, func(r Figures) float64 { return r.Found.Remembered }),
		Together:           MedianOf(runs, func(r Figures) float64 { return r.Found.Together }),
		EnvelopesPerPacket: MedianOf(runs, func(r Figures) float64 { return r.Found.EnvelopesPerPacket }),
		RepliesPerPacket:   MedianOf(runs, func(r Figures) float64 { return r.Found.RepliesPerPacket }),
	}
}
