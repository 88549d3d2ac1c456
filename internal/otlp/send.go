package otlp

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/farhand/farhand/internal/pause"
)

// maxResponse is the maximum size of a collector's answer that is read, in bytes.
const maxResponse = 64 << 10

// Pauses between the attempts of one export, unless the collector names a longer one.
const (
	firstPause = 500 * time.Millisecond
	lastPause  = 5 * time.Second
)

// sender sends requests to a collector. It is used by one goroutine.
type sender struct {
	cfg    Config
	client *http.Client
}

func newSender(c Config) *sender {
	var protocols http.Protocols
	protocols.SetHTTP1(c.protocol == protocolHTTP)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(c.protocol == protocolGRPC)
	return &sender{c, &http.Client{
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, Protocols: &protocols, TLSClientConfig: cloned(c.tls),
			MaxIdleConns: 1, IdleConnTimeout: 90 * time.Second, TLSHandshakeTimeout: c.timeout,
			MaxResponseHeaderBytes: maxResponse,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // has headers
	}}
}

func cloned(c *tls.Config) *tls.Config {
	if c == nil {
		return nil
	}
	return c.Clone()
}

// failure is why a collector did not accept spans.
type failure struct {
	err   error
	retry bool          // the same request may succeed later
	pause time.Duration // the collector asks to wait that long; zero: it does not say
}

// send sends a request, again if that may help, for at most Config.timeout. It returns how many spans the collector
// rejected.
func (s *sender) send(ctx context.Context, request []byte) (rejected int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, min(s.cfg.timeout, s.cfg.limit))
	defer cancel()
	if s.cfg.gzip {
		request = zip(request)
	}
	once := s.overHTTP
	if s.cfg.protocol == protocolGRPC {
		once = s.overGRPC
	}
	for wait := firstPause; ; wait = min(2*wait, lastPause) {
		rejected, failed := once(ctx, request)
		if failed == nil {
			return rejected, nil
		}
		next := max(failed.pause, wait/2+rand.N(wait/2))
		if end, _ := ctx.Deadline(); !failed.retry || time.Until(end) < next {
			return 0, failed.err
		}
		if pause.For(ctx, next) != nil {
			return 0, failed.err
		}
	}
}

func zip(b []byte) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, _ = w.Write(b) // to memory
	_ = w.Close()
	return out.Bytes()
}

// post sends a body and returns the response with its body read.
func (s *sender) post(ctx context.Context, body []byte, header map[string]string) (*http.Response, []byte, *failure) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.cfg.endpoint, bytes.NewReader(body))
	if err != nil {
		return nil, nil, &failure{err: err}
	}
	req.Header = s.cfg.headers.Clone()
	for name, value := range header {
		req.Header.Set(name, value)
	}
	res, err := s.client.Do(req)
	if err != nil {
		if u, ok := errors.AsType[*url.Error](err); ok {
			err = u.Err // without the URL, which may have a password
		}
		return nil, nil, &failure{err: err, retry: true}
	}
	defer res.Body.Close() //nolint:errcheck // it was only read
	answer, err := io.ReadAll(io.LimitReader(res.Body, maxResponse))
	if err != nil {
		return nil, nil, &failure{err: err, retry: true}
	}
	return res, answer, nil
}

func (s *sender) overHTTP(ctx context.Context, request []byte) (int64, *failure) {
	header := map[string]string{"Content-Type": "application/x-protobuf"}
	if s.cfg.gzip {
		header["Content-Encoding"] = "gzip"
	}
	res, answer, failed := s.post(ctx, request, header)
	if failed != nil {
		return 0, failed
	}
	switch res.StatusCode {
	case http.StatusOK, http.StatusAccepted:
		n, _ := rejected(answer)
		return n, nil
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		seconds, _ := strconv.Atoi(res.Header.Get("Retry-After"))
		return 0, &failure{errors.New(res.Status), true, time.Duration(min(max(seconds, 0), 3600)) * time.Second}
	default:
		return 0, &failure{err: errors.New(res.Status)}
	}
}

// Codes of gRPC.
const (
	grpcOK        = "0"
	grpcExhausted = "8"
)

// grpcRetryable are the codes of gRPC after which OTLP sends the same spans again: cancelled, deadline exceeded,
// aborted, out of range, unavailable, data loss.
const grpcRetryable = " 1 4 10 11 14 15 "

func (s *sender) overGRPC(ctx context.Context, request []byte) (int64, *failure) {
	header := map[string]string{"Content-Type": "application/grpc", "Te": "trailers"}
	frame := make([]byte, 5, 5+len(request))
	if s.cfg.gzip {
		header["Grpc-Encoding"], frame[0] = "gzip", 1
	}
	binary.BigEndian.PutUint32(frame[1:], uint32(len(request)))
	if end, ok := ctx.Deadline(); ok {
		header["Grpc-Timeout"] = strconv.FormatInt(max(time.Until(end).Milliseconds(), 1), 10) + "m"
	}
	res, answer, failed := s.post(ctx, append(frame, request...), header)
	if failed != nil {
		return 0, failed
	}
	status, text := grpcStatus(res)
	switch {
	case status == grpcOK:
		n, _ := rejected(grpcMessage(answer))
		return n, nil
	case status == "": // a proxy or a server of something else
		temporary := res.StatusCode == http.StatusTooManyRequests || res.StatusCode >= http.StatusBadGateway
		return 0, &failure{err: fmt.Errorf("no gRPC answer: %s", res.Status), retry: temporary}
	}
	// Exhausted is retried only if the server says when; without protobuf details it does not.
	retry := strings.Contains(grpcRetryable, " "+status+" ") ||
		status == grpcExhausted && res.Trailer.Get("Grpc-Status-Details-Bin") != ""
	return 0, &failure{err: fmt.Errorf("gRPC status %s: %.200s", status, text), retry: retry}
}

// grpcMessage returns the message of a frame, which servers compress if the request was compressed; nil: there is none.
func grpcMessage(frame []byte) []byte {
	if len(frame) < 5 {
		return nil
	}
	if frame[0] == 0 {
		return frame[5:]
	}
	in, err := gzip.NewReader(bytes.NewReader(frame[5:]))
	if err != nil {
		return nil
	}
	text, _ := io.ReadAll(io.LimitReader(in, maxResponse)) // what is cut is a text for people
	return text
}

// grpcStatus returns the status of a response. It is in the header if there is no body.
func grpcStatus(res *http.Response) (status, text string) {
	from := res.Trailer
	if from.Get("Grpc-Status") == "" {
		from = res.Header
	}
	return from.Get("Grpc-Status"), from.Get("Grpc-Message")
}
