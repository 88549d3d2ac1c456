package api

import (
	"bytes"
	"compress/gzip"
	"strconv"
	"strings"
	"sync"
)

// gzipMinimum is the length of the shortest answer worth compressing, in bytes. A shorter one fits one TCP segment
// anyway.
const gzipMinimum = 1400

// gzipPool keeps compressors, which are large, for reuse. The zero value is ready.
type gzipPool struct{ pool sync.Pool }

func (p *gzipPool) compress(body []byte) []byte {
	var b bytes.Buffer
	zw, ok := p.pool.Get().(*gzip.Writer)
	if ok {
		zw.Reset(&b)
	} else {
		zw, _ = gzip.NewWriterLevel(&b, gzip.BestSpeed) // fails only for a level that does not exist
	}
	defer p.pool.Put(zw)
	_, _ = zw.Write(body) // writing to a buffer does not fail
	_ = zw.Close()
	return b.Bytes()
}

// acceptsGzip evaluates Accept-Encoding: gzip by name wins over *, and a quality of zero refuses.
func acceptsGzip(values []string) bool {
	named, others := -1.0, -1.0
	for _, value := range values {
		for item := range strings.SplitSeq(value, ",") {
			coding, weight, _ := strings.Cut(item, ";")
			switch strings.ToLower(strings.TrimSpace(coding)) {
			case "gzip", "x-gzip":
				named = max(named, quality(weight))
			case "*":
				others = quality(weight)
			}
		}
	}
	if named >= 0 {
		return named > 0
	}
	return others > 0
}

// quality reads a weight such as "q=0.5". A missing one is 1. One that makes no sense is 0, which refuses the coding.
func quality(weight string) float64 {
	weight = strings.TrimSpace(weight)
	if weight == "" {
		return 1
	}
	name, value, _ := strings.Cut(weight, "=")
	q, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
	if err != nil || !strings.EqualFold(strings.TrimSpace(name), "q") || q < 0 || q > 1 {
		return 0
	}
	return q
}
