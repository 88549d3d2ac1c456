package browser

import (
	"context"
	"errors"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/cdp/jsonv2"
	"github.com/chromedp/cdproto/fetch"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"github.com/farhand/farhand/internal/egress"
)

// greet has Chromium show its password to the proxy. It remembers the password for all its tabs from then on.
func (t *tab) greet(ctx context.Context, proxy *egress.Proxy) error {
	auth, stopAuth := t.wire.Subscribe(fetch.AuthRequired.Method)
	defer stopAuth()
	paused, stopPaused := t.wire.Subscribe(fetch.RequestPaused.Method)
	defer stopPaused()
	yes := true
	if _, err := cdp.Call(ctx, t.wire, fetch.Enable, fetch.EnableParams{HandleAuthRequests: &yes,
		Patterns: []*fetch.RequestPattern{{URLPattern: egress.HelloURL + "*"}}}); err != nil {
		return err
	}
	loaded := make(chan error, 1)
	go func() {
		_, err := cdp.Call(ctx, t.wire, page.Navigate, page.NavigateParams{URL: egress.HelloURL})
		loaded <- err
	}()
	for done := false; !done; {
		select {
		case raw := <-auth:
			if err := t.authenticate(ctx, raw, proxy.Password()); err != nil {
				return err
			}
		case raw := <-paused:
			if err := t.proceed(ctx, raw); err != nil {
				return err
			}
		case err := <-loaded:
			if err != nil {
				return err
			}
			done = true
		}
	}
	if !proxy.Greeted() {
		return errors.New("browser: Chromium does not use the gateway's proxy")
	}
	if _, err := cdp.Call(ctx, t.wire, fetch.Disable, cdp.Empty{}); err != nil {
		return err
	}
	err := t.blank(ctx)
	t.settle(ctx, settleTimeout)
	return err
}

// authenticate gives the password, if it is the proxy that asks.
func (t *tab) authenticate(ctx context.Context, raw jsonv2.Value, password string) error {
	var e fetch.EventAuthRequired
	if err := jsonv2.Unmarshal(raw, &e, chromedp.DefaultUnmarshalOptions); err != nil {
		return err
	}
	answer := fetch.AuthChallengeResponse{Response: fetch.AuthChallengeResponseResponseCancelAuth}
	if e.AuthChallenge != nil && e.AuthChallenge.Source == fetch.AuthChallengeSourceProxy {
		answer = fetch.AuthChallengeResponse{Response: fetch.AuthChallengeResponseResponseProvideCredentials,
			Username: egress.User, Password: password}
	}
	_, err := cdp.Call(ctx, t.wire, fetch.ContinueWithAuth,
		fetch.ContinueWithAuthParams{RequestID: e.RequestID, AuthChallengeResponse: &answer})
	return err
}

// proceed lets a request go on.
func (t *tab) proceed(ctx context.Context, raw jsonv2.Value) error {
	var e fetch.EventRequestPaused
	if err := jsonv2.Unmarshal(raw, &e, chromedp.DefaultUnmarshalOptions); err != nil {
		return err
	}
	_, err := cdp.Call(ctx, t.wire, fetch.ContinueRequest, fetch.ContinueRequestParams{RequestID: e.RequestID})
	return err
}
