package blobs

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/minio/minio-go/v7/pkg/encrypt"
)

// bucket keeps files by name. Names have no folders. It is safe for concurrent use.
type bucket interface {
	// put stores the bytes of body, all or none. size is how many there are.
	put(ctx context.Context, name string, size int64, body io.Reader) error
	// get opens a file. The caller closes it.
	get(ctx context.Context, name string) (io.ReadCloser, error)
	// remove removes a file. It is no error if there is none.
	remove(ctx context.Context, name string) error
	// before returns up to most names that sort before end.
	before(ctx context.Context, end string, most int) ([]string, error)
	close() error
}

// openBucket opens the bucket of a URL. A folder is made if it is not there; an S3 server is not asked.
func openBucket(raw string) (bucket, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return nil, errForm
	}
	switch u.Scheme {
	case "file":
		return openFolder(u)
	case "s3":
		return openS3(u)
	}
	return nil, errForm
}

var errForm = errors.New("must look like file:///folder or s3://bucket?region=eu-central-1")

// CheckURL reports why no bucket can have a URL, without making a folder, asking a server, or repeating the URL, which
// may hold a key. Whether a folder may be written, and a server answers, is found out by Open.
func CheckURL(raw string) error {
	u, err := url.Parse(raw)
	if err != nil {
		return errForm
	}
	switch u.Scheme {
	case "file":
		return checkFolder(u)
	case "s3":
		_, err := openS3(u)
		return err
	}
	return errForm
}

// Probe reports why files cannot be kept in a bucket. A folder is made.
func Probe(ctx context.Context, raw string) error {
	b, err := openBucket(raw)
	if err != nil {
		return err
	}
	_, err = b.before(ctx, "", 1)
	return errors.Join(err, b.close())
}

// folder is a bucket in the file system. What is being written has another name, which the sweep finds too if this
// process dies.
type folder struct{ root *os.Root }

// unfinished ends the names of files that are being written.
const unfinished = ".tmp"

// folderPath returns the path of a folder's URL.
func folderPath(u *url.URL) (string, error) {
	if u.Host != "" && u.Host != "." && u.Host != "localhost" || u.Path == "" {
		return "", errForm
	}
	for name := range u.Query() {
		if !slices.Contains([]string{"create_dir", "no_tmp_dir", "metadata"}, name) { // which are what it does anyway
			return "", fmt.Errorf("the parameter %q of a folder is not known", name)
		}
	}
	if u.Host == "." {
		return filepath.FromSlash("." + u.Path), nil
	}
	return filepath.FromSlash(u.Path), nil
}

// checkFolder reports why there can be no folder: what is there of the way to it must be folders.
func checkFolder(u *url.URL) error {
	dir, err := folderPath(u)
	if err != nil {
		return err
	}
	for dir = filepath.ToSlash(dir); ; dir = path.Dir(dir) {
		info, err := os.Stat(filepath.FromSlash(dir))
		switch {
		case err == nil && info.IsDir():
			return nil
		case !errors.Is(err, fs.ErrNotExist) || path.Dir(dir) == dir:
			return errors.New("names no folder that can be made")
		}
	}
}

func openFolder(u *url.URL) (bucket, error) {
	dir, err := folderPath(u)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	return folder{root}, nil
}

func (f folder) put(_ context.Context, name string, _ int64, body io.Reader) (err error) {
	file, err := f.root.OpenFile(name+unfinished, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = f.root.Remove(name + unfinished)
		}
	}()
	_, err = io.Copy(file, body)
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	return f.root.Rename(name+unfinished, name)
}

func (f folder) get(_ context.Context, name string) (io.ReadCloser, error) { return f.root.Open(name) }

func (f folder) remove(_ context.Context, name string) error {
	if err := f.root.Remove(name); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// entriesAtATime is how many names of a folder are in memory at a time.
const entriesAtATime = 1024

func (f folder) before(ctx context.Context, end string, most int) (names []string, err error) {
	dir, err := f.root.Open(".")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	for ctx.Err() == nil {
		entries, err := dir.ReadDir(entriesAtATime)
		for _, e := range entries {
			if e.Name() < end && !e.IsDir() {
				if names = append(names, e.Name()); len(names) == most {
					return names, nil
				}
			}
		}
		if errors.Is(err, io.EOF) {
			return names, nil
		}
		if err != nil {
			return nil, err
		}
	}
	return nil, context.Cause(ctx)
}

func (f folder) close() error { return f.root.Close() }

const (
	maxAnswer = 4 << 20 // bytes of an answer of a bucket that is no file; a page of a list has some hundred thousand
	partBytes = 5 << 20 // bytes of a file that are in memory while it is uploaded; buckets take no smaller parts
	s3Tries   = 3       // of a request that the server refuses for now
	awsServer = "s3.amazonaws.com"
)

var errAnswer = errors.New("the bucket has sent more than one answer may have")

// s3Bucket is a bucket on S3, whose server is no more trusted than it must be: it leads the gateway nowhere else, and
// its answers are bounded.
type s3Bucket struct {
	client    *minio.Client
	transport *http.Transport
	name      string
	sse       encrypt.ServerSide
}

// s3Settings are what the URL of a bucket says. The credentials are where AWS's own programs look for them.
type s3Settings struct {
	region, endpoint, profile, sse, kmsKey  string
	pathStyle, plain, dualstack, accelerate bool
	anonymous                               bool
}

// readS3 reads the parameters of a URL, and what of them AWS's variables say.
func readS3(u *url.URL) (s s3Settings, err error) {
	texts := map[string]*string{
		"region": &s.region, "endpoint": &s.endpoint, "profile": &s.profile, "ssetype": &s.sse, "kmskeyid": &s.kmsKey,
		"awssdk": new(string), "hostname_immutable": new(string), // of earlier releases, and without a meaning
	}
	flags := map[string]*bool{
		"use_path_style": &s.pathStyle, "s3ForcePathStyle": &s.pathStyle, "disable_https": &s.plain,
		"dualstack": &s.dualstack, "accelerate": &s.accelerate, "anonymous": &s.anonymous,
	}
	for name, values := range u.Query() {
		switch value := values[0]; {
		case texts[name] != nil:
			*texts[name] = value
		case flags[name] != nil:
			if *flags[name], err = strconv.ParseBool(value); err != nil {
				return s, fmt.Errorf("%s: must be true or false", name)
			}
		default:
			return s, fmt.Errorf("the parameter %q of a bucket is not known", name)
		}
	}
	s.region = cmp.Or(s.region, os.Getenv("AWS_REGION"), os.Getenv("AWS_DEFAULT_REGION"))
	s.endpoint = cmp.Or(s.endpoint, os.Getenv("AWS_ENDPOINT_URL_S3"), os.Getenv("AWS_ENDPOINT_URL"))
	return s, nil
}

// server returns the host of the server, and whether it speaks TLS.
func (s s3Settings) server() (host string, secure bool, err error) {
	if s.endpoint == "" {
		return awsServer, !s.plain, nil
	}
	u, err := url.Parse(s.endpoint)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return "", false, errors.New("endpoint: must look like https://s3.example.com")
	}
	return u.Host, u.Scheme == "https", nil
}

// encryption returns how the server is to encrypt files, nil: as it does by itself.
func (s s3Settings) encryption() (encrypt.ServerSide, error) {
	switch strings.ToLower(s.sse) {
	case "":
		if s.kmsKey != "" {
			return encrypt.NewSSEKMS(s.kmsKey, nil)
		}
		return nil, nil
	case "aes256":
		return encrypt.NewSSE(), nil
	case "aws:kms":
		return encrypt.NewSSEKMS(s.kmsKey, nil)
	}
	return nil, errors.New("ssetype: must be AES256 or aws:kms")
}

// lookup returns where the name of the bucket stands in addresses.
func (s s3Settings) lookup() minio.BucketLookupType {
	if s.pathStyle {
		return minio.BucketLookupPath
	}
	return minio.BucketLookupDNS
}

// credentials returns where keys are looked for.
func (s s3Settings) credentials(transport http.RoundTripper) *credentials.Credentials {
	if s.anonymous {
		return credentials.NewStaticV4("", "", "")
	}
	return credentials.NewChainCredentials([]credentials.Provider{
		&credentials.EnvAWS{},
		&credentials.FileAWSCredentials{Profile: s.profile},
		&credentials.IAM{Client: &http.Client{Transport: transport}, Region: s.region},
	})
}

// openS3 opens a bucket without asking its server.
func openS3(u *url.URL) (bucket, error) {
	if u.Host == "" || u.Path != "" && u.Path != "/" {
		return nil, errForm
	}
	s, err := readS3(u)
	if err != nil {
		return nil, err
	}
	host, secure, err := s.server()
	if err != nil {
		return nil, err
	}
	b := &s3Bucket{name: u.Host}
	if b.sse, err = s.encryption(); err != nil {
		return nil, err
	}
	if b.transport, err = newTransport(secure); err != nil {
		return nil, err
	}
	b.client, err = minio.New(host, &minio.Options{
		Creds: s.credentials(b.transport), Secure: secure, Region: s.region, BucketLookup: s.lookup(),
		MaxRetries: s3Tries, Transport: boundedAnswers{b.transport},
	})
	if err != nil {
		return nil, errors.New("names no bucket that can be asked for")
	}
	b.client.SetS3EnableDualstack(s.dualstack)
	if s.accelerate {
		b.client.SetS3TransferAccelerate("s3-accelerate.amazonaws.com")
	}
	return b, nil
}

// newTransport returns one that trusts the authorities of AWS_CA_BUNDLE, where that is set.
func newTransport(secure bool) (*http.Transport, error) {
	transport, err := minio.DefaultTransport(secure)
	if err != nil {
		return nil, err
	}
	file := os.Getenv("AWS_CA_BUNDLE")
	if file == "" {
		return transport, nil
	}
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("AWS_CA_BUNDLE: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, errors.New("AWS_CA_BUNDLE: the file holds no certificates")
	}
	transport.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	return transport, nil
}

func (b *s3Bucket) put(ctx context.Context, name string, size int64, body io.Reader) error {
	_, err := b.client.PutObject(ctx, b.name, name, body, size, minio.PutObjectOptions{
		ContentType: "application/octet-stream", PartSize: partBytes, NumThreads: 1, ServerSideEncryption: b.sse,
	})
	return err
}

func (b *s3Bucket) get(ctx context.Context, name string) (io.ReadCloser, error) {
	core := minio.Core{Client: b.client}
	file, _, _, err := core.GetObject(ctx, b.name, name, minio.GetObjectOptions{})
	return file, err
}

func (b *s3Bucket) remove(ctx context.Context, name string) error {
	return b.client.RemoveObject(ctx, b.name, name, minio.RemoveObjectOptions{})
}

func (b *s3Bucket) before(ctx context.Context, end string, most int) (names []string, err error) {
	for file := range b.client.ListObjectsIter(ctx, b.name, minio.ListObjectsOptions{Recursive: true, MaxKeys: most}) {
		switch {
		case file.Err != nil:
			return nil, file.Err
		case file.Key >= end || len(names) == most: // they come in order
			return names, nil
		}
		names = append(names, file.Key)
	}
	return names, ctx.Err()
}

func (b *s3Bucket) close() error {
	b.transport.CloseIdleConnections()
	return nil
}

// boundedAnswers bounds what is read of answers that the client holds whole: all but those with a file. The client
// follows no redirects: elsewhere a bucket would have the gateway ask whatever it can reach, and serve the answer.
type boundedAnswers struct{ to http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (b boundedAnswers) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := b.to.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	isFile := req.Method == http.MethodGet && resp.StatusCode == http.StatusOK && req.URL.RawQuery == ""
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
