package hooks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	webhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/farhand/farhand/internal/publicnet"
	"github.com/farhand/farhand/internal/share"
)

const (
	// answerSpare is how much longer than the question an answer may be, in bytes.
	answerSpare = 64 << 10

	// maxHeld is how many bytes of questions and answers one hook holds at once, about. A question that is longer waits
	// until it is alone.
	maxHeld = 64 << 20
)

// client asks one hook.
type client struct {
	url       string
	signer    *webhooks.Webhook
	http      *http.Client
	transport *http.Transport
	slots     *share.Pool // of questions at once
	held      *share.Pool // of bytes
}

func newClient(cfg Config) (*client, error) {
	signer, err := webhooks.NewWebhook(string(cfg.Secret))
	if err != nil {
		return nil, errors.New("secret: must be Base64")
	}
	transport := publicnet.Guard{AllowPrivate: cfg.AllowPrivate}.Transport(cfg.Timeout)
	transport.MaxConnsPerHost, transport.MaxIdleConnsPerHost = cfg.Concurrent, cfg.Concurrent
	return &client{
		url: cfg.URL, signer: signer, transport: transport,
		slots: halfEach(int64(cfg.Concurrent)), held: halfEach(maxHeld),
		http: &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse // where a redirect leads to, nobody has configured
		}},
	}, nil
}

// halfEach returns a pool of which an identity has what its tenant has at most.
func halfEach(all int64) *share.Pool {
	return share.New(share.Bounds{Pod: all, Identity: max(all/2, 1)})
}

// ask sends an owner's question whose text takes about size bytes in it, and returns the answer. It waits its turn
// within ctx.
func (c *client) ask(
	ctx context.Context, of share.Owner, id string, size int, body func() ([]byte, error),
) ([]byte, error) {
	return c.send(ctx, of, id, size, body, func(status int) bool { return status == http.StatusOK })
}

// tell sends a message, of which nothing but the status of the answer counts.
func (c *client) tell(ctx context.Context, of share.Owner, id string, body func() ([]byte, error)) error {
	_, err := c.send(ctx, of, id, 0, body, func(status int) bool { return status >= 200 && status < 300 })
	return err
}

// send makes one request, and returns the body of an answer whose status is good.
func (c *client) send(
	ctx context.Context, of share.Owner, id string, size int, body func() ([]byte, error), good func(status int) bool,
) ([]byte, error) {
	slot, err := c.slots.Acquire(ctx, of, 1)
	if err != nil {
		return nil, fmt.Errorf("%w: as many others are being asked as may be at once", errBusy)
	}
	defer slot.Release()
	held, err := c.held.Acquire(ctx, of, int64(3*size+answerSpare)) // the text, the question and the answer
	if err != nil {
		return nil, fmt.Errorf("%w: others are too long", errBusy)
	}
	defer held.Release()
	text, err := body()
	if err != nil {
		return nil, err
	}
	req, err := c.request(ctx, id, text)
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		if wrapped := (*url.Error)(nil); errors.As(err, &wrapped) {
			err = wrapped.Err // without the URL
		}
		return nil, err
	}
	defer resp.Body.Close()
	if !good(resp.StatusCode) {
		return nil, fmt.Errorf("%w: status %d", errAnswer, resp.StatusCode)
	}
	limit := len(text) + answerSpare
	answer, err := io.ReadAll(io.LimitReader(resp.Body, int64(limit)+1))
	if err == nil && len(answer) > limit {
		err = fmt.Errorf("%w: longer than %d bytes", errAnswer, limit)
	}
	return answer, err
}

// request makes the signed request of a question.
func (c *client) request(ctx context.Context, id string, text []byte) (*http.Request, error) {
	now := time.Now()
	signature, err := c.signer.Sign(id, now, text)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "farhand")
	req.Header.Set(webhooks.HeaderWebhookID, id)
	req.Header.Set(webhooks.HeaderWebhookTimestamp, strconv.FormatInt(now.Unix(), 10))
	req.Header.Set(webhooks.HeaderWebhookSignature, signature)
	return req, nil
}

// close closes the connections that nobody uses.
func (c *client) close() { c.transport.CloseIdleConnections() }
