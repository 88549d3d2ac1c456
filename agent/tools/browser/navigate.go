package browser

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/page"
)

// load loads a URL in a tab, and waits until the page is there or the time of a page is up.
func (t *tab) load(ctx context.Context, address string) error {
	t.fresh = false
	t.refs.expire()
	t.unreached.Store(false)
	bounded, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	res, err := cdp.Call(bounded, t.wire, page.Navigate, page.NavigateParams{URL: address})
	switch {
	case err != nil && ctx.Err() == nil && errors.Is(bounded.Err(), context.DeadlineExceeded):
		_, _ = cdp.Call(ctx, t.wire, page.StopLoading, cdp.Empty{})
		t.activity.forget()
		return failure(fmt.Sprintf("the page did not answer within %s", loadTimeout))
	case err != nil:
		return err
	case res.IsDownload:
		return failure("this is a file to download, and downloads are off")
	case strings.Contains(res.ErrorText, "ERR_INVALID_AUTH_CREDENTIALS"):
		return errLogin
	case res.ErrorText != "":
		return failure("the page could not be loaded: " + explain(res.ErrorText))
	}
	if !t.settle(bounded, loadTimeout) && ctx.Err() == nil {
		t.notes.add("the page is still loading")
	}
	if t.unreached.Load() {
		return failure("the page could not be loaded")
	}
	return nil
}

// errLogin is for pages that nobody is let in to.
const errLogin = failure("the page could not be loaded: the site asks for a user name and a password in a dialog, " +
	"which this browser does not have")

// explain adds to an error of Chromium what it means here.
func explain(text string) string {
	switch {
	case strings.Contains(text, "ERR_TUNNEL_CONNECTION_FAILED"):
		return text + " (the gateway's proxy did not connect)"
	case strings.Contains(text, "ERR_ABORTED"):
		return text + " (there was no page to show: a download, or an empty answer)"
	case strings.Contains(text, "ERR_CERT"):
		return text + " (its certificate is not to be trusted)"
	default:
		return text
	}
}
