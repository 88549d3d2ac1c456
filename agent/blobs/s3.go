package blobs

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"gocloud.dev/blob"
	"gocloud.dev/blob/s3blob"
)

const (
	maxAnswer = 4 << 20 // bytes of an answer of a bucket that is no file; a page of a list has some hundred thousand
	partBytes = 5 << 20 // bytes of a file that are in memory while it is uploaded; buckets take no smaller parts
)

var errAnswer = errors.New("the bucket has sent more than one answer may have")

// openBucket opens the bucket of a URL.
func openBucket(ctx context.Context, url string) (*blob.Bucket, error) {
	var buckets blob.URLMux
	buckets.RegisterBucket(s3blob.Scheme, s3Opener{})
	if buckets.ValidBucketScheme(schemeOf(url)) {
		return buckets.OpenBucket(ctx, url)
	}
	return blob.OpenBucket(ctx, withOptions(url))
}

func schemeOf(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return ""
	}
	return u.Scheme
}

// s3Opener opens buckets on S3 whose server is no more trusted than it must be: it leads the gateway nowhere else, and
// its answers are bounded.
type s3Opener struct{}

// OpenBucketURL implements blob.BucketURLOpener.
func (s3Opener) OpenBucketURL(ctx context.Context, u *url.URL) (*blob.Bucket, error) {
	var opener s3blob.URLOpener // notes the options that the URL has
	bucket, err := opener.OpenBucketURL(ctx, u)
	var client *s3.Client
	if err != nil || !bucket.As(&client) {
		return bucket, err
	}
	options := client.Options()
	transport := awshttp.NewBuildableClient().GetTransport()
	if b, ok := options.HTTPClient.(*awshttp.BuildableClient); ok {
		transport = b.GetTransport() // with what the environment says, such as the authorities it trusts
	}
	options.HTTPClient = &http.Client{Transport: boundedAnswers{transport}, CheckRedirect: sameHost}
	return s3blob.OpenBucket(ctx, s3.New(options), u.Host, &opener.Options)
}

// sameHost follows a bucket on its own host only. Elsewhere it would have the gateway ask whatever this can reach, and
// serve the answer as a file.
func sameHost(req *http.Request, via []*http.Request) error {
	if len(via) > 3 || req.URL.Host != via[0].URL.Host || req.URL.Scheme != via[0].URL.Scheme {
		return http.ErrUseLastResponse
	}
	return nil
}

// boundedAnswers bounds what is read of answers that the SDK holds whole: all but those with a file.
type boundedAnswers struct{ to http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (b boundedAnswers) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := b.to.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	isFile := req.Method == http.MethodGet && resp.StatusCode == http.StatusOK && !req.URL.Query().Has("list-type")
	if !isFile {
		resp.Body = &boundedBody{resp.Body, maxAnswer}
	}
	return resp, nil
}

// boundedBody is a body that fails when it is too long.
type boundedBody struct {
	io.ReadCloser
	left int
}

// Read implements io.Reader.
func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.left -= n; b.left < 0 {
		return 0, errAnswer
	}
	return n, err
}
