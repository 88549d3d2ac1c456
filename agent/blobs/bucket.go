package blobs

import (
	"bytes"
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
	"sync/atomic"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/minio/minio-go/v7/pkg/encrypt"
)

// bucket stores files by name. Names have no folders. It is safe for concurrent use.
type bucket interface {
	// put stores the size bytes of body atomically.
	put(ctx context.Context, name string, size int64, body io.Reader) error
	// get opens a file. The caller closes it.
	get(ctx context.Context, name string) (io.ReadCloser, error)
	// remove removes a file. A missing file is no error.
	remove(ctx context.Context, name string) error
	// before returns up to most names that sort before end. If it fails, it returns those that it has found.
	before(ctx context.Context, end string, most int) ([]string, error)
	close() error
}

// openBucket opens the bucket of a URL; folder opens that of a folder. An S3 server is not contacted.
func openBucket(raw string, folder func(*url.URL) (bucket, error)) (bucket, error) {
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		return nil, errForm
	case u.Scheme == "file":
		return folder(u)
	case u.Scheme == "s3":
		return openS3(u)
	}
	return nil, errForm
}

var errForm = errors.New("must look like file:///folder or s3://bucket?region=eu-central-1")

// CheckURL returns an error if a URL is not valid for a bucket. It creates no folder, contacts no server, and does not
// repeat the URL, which may have a key. Probe finds out whether the bucket can be opened and listed.
func CheckURL(raw string) error {
	_, err := openBucket(raw, checkFolder)
	return err
}

// Probe returns an error if a bucket cannot be opened and listed. It creates a missing folder.
func Probe(ctx context.Context, raw string) error {
	b, err := openBucket(raw, openFolder)
	if err != nil {
		return err
	}
	_, err = b.before(ctx, "", 1)
	return errors.Join(err, b.close())
}

// Try stores a small file in a bucket, reads it and removes it. It creates a missing folder. If it cannot remove the
// file, a gateway does after tryLife.
func Try(ctx context.Context, raw string) (err error) {
	b, err := openBucket(raw, openFolder)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	name, content := objectName(time.Now().Add(tryLife)), "farhand doctor"
	if err := b.put(ctx, name, int64(len(content)), strings.NewReader(content)); err != nil {
		return fmt.Errorf("a file cannot be stored: %w", err)
	}
	read, err := b.get(ctx, name)
	if err == nil {
		var text []byte
		text, err = io.ReadAll(io.LimitReader(read, int64(len(content))+1))
		if err = errors.Join(err, read.Close()); err == nil && string(text) != content {
			err = errors.New("it has other bytes")
		}
	}
	if err != nil {
		err = fmt.Errorf("a stored file cannot be read: %w", err)
	}
	if gone := b.remove(ctx, name); gone != nil {
		err = errors.Join(err, fmt.Errorf("a stored file cannot be removed: %w", gone))
	}
	return err
}

// tryLife is how long a file of Try stays if it cannot be removed.
const tryLife = time.Minute

// folder is a bucket in the file system. A file has a temporary name, which the sweep also finds, while it is written.
type folder struct{ root *os.Root }

// unfinished is the suffix of files that are being written.
const unfinished = ".tmp"

func folderPath(u *url.URL) (string, error) {
	if u.Host != "" && u.Host != "." && u.Host != "localhost" || u.Path == "" {
		return "", errForm
	}
	for name := range u.Query() {
		if !slices.Contains([]string{"create_dir", "no_tmp_dir", "metadata"}, name) { // describe the default behavior
			return "", fmt.Errorf("the folder parameter %q is unknown", name)
		}
	}
	if u.Host == "." {
		return filepath.FromSlash("." + u.Path), nil
	}
	return filepath.FromSlash(u.Path), nil
}

// checkFolder returns an error if the folder cannot exist: all existing parts of its path must be folders.
func checkFolder(u *url.URL) (bucket, error) {
	dir, err := folderPath(u)
	if err != nil {
		return nil, err
	}
	for dir = filepath.ToSlash(dir); ; dir = path.Dir(dir) {
		info, err := os.Stat(filepath.FromSlash(dir))
		switch {
		case err == nil && info.IsDir():
			return nil, nil
		case !errors.Is(err, fs.ErrNotExist) || path.Dir(dir) == dir:
			return nil, errors.New("is not a folder that can be created")
		}
	}
}

// openFolder opens a folder. A missing one is created.
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

// entriesAtATime is how many names of a folder are read at a time.
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
			return names, err
		}
	}
	return names, context.Cause(ctx)
}

func (f folder) close() error { return f.root.Close() }

const (
	maxAnswer = 4 << 20  // bytes of an answer other than a file; a list page has some hundred thousand
	maxTags   = 40_000   // tags of XML in it; a list page has up to 28 for each of 1000 files
	maxHeader = 64 << 10 // bytes of the header of an answer; the default is 10 MiB
	maxPages  = 64       // requests of one list, which may have to pass files of others
	partBytes = 5 << 20  // bytes of a file in memory during upload; the minimum part size of S3
	s3Tries   = 3        // attempts of a request that the server rejects temporarily
	awsServer = "s3.amazonaws.com"
)

var (
	errAnswer = errors.New("the answer of the bucket is too large")
	errPages  = errors.New("the bucket's list has too many pages")
)

// s3Bucket is a bucket on S3. Its server cannot redirect the gateway, and its answers are bounded.
type s3Bucket struct {
	client    *minio.Client
	transport *http.Transport
	name      string
	sse       encrypt.ServerSide
}

// s3Settings are the settings in a bucket's URL. Credentials come from the same places as in AWS's own tools.
type s3Settings struct {
	region, endpoint, profile, sse, kmsKey  string
	pathStyle, plain, dualstack, accelerate bool
	anonymous                               bool
}

// readS3 reads the parameters of a URL. Region and endpoint default to AWS's environment variables.
func readS3(u *url.URL) (s s3Settings, err error) {
	texts := map[string]*string{
		"region": &s.region, "endpoint": &s.endpoint, "profile": &s.profile, "ssetype": &s.sse, "kmskeyid": &s.kmsKey,
		"awssdk": new(string), "hostname_immutable": new(string), // from earlier releases; ignored
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
			return s, fmt.Errorf("the bucket parameter %q is unknown", name)
		}
	}
	s.region = cmp.Or(s.region, os.Getenv("AWS_REGION"), os.Getenv("AWS_DEFAULT_REGION"))
	s.endpoint = cmp.Or(s.endpoint, os.Getenv("AWS_ENDPOINT_URL_S3"), os.Getenv("AWS_ENDPOINT_URL"))
	return s, nil
}

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

// encryption returns how the server must encrypt files. Nil: the server's default.
func (s s3Settings) encryption() (encrypt.ServerSide, error) {
	switch sse := strings.ToLower(s.sse); {
	case sse == "" && s.kmsKey == "":
		return nil, nil
	case sse == "" || sse == "aws:kms":
		return encrypt.NewSSEKMS(s.kmsKey, nil)
	case sse == "aes256":
		return encrypt.NewSSE(), nil
	}
	return nil, errors.New("ssetype: must be AES256 or aws:kms")
}

// credentials returns the sources of credentials, in order.
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

// openS3 opens a bucket without contacting its server.
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
	lookup := minio.BucketLookupDNS // where URLs contain the bucket's name
	if s.pathStyle {
		lookup = minio.BucketLookupPath
	}
	b := &s3Bucket{name: u.Host}
	if b.sse, err = s.encryption(); err != nil {
		return nil, err
	}
	if b.transport, err = newTransport(secure); err != nil {
		return nil, err
	}
	b.client, err = minio.New(host, &minio.Options{
		Creds: s.credentials(b.transport), Secure: secure, Region: s.region, BucketLookup: lookup,
		MaxRetries: s3Tries, Transport: boundedAnswers{b.transport},
	})
	if err != nil {
		return nil, errors.New("is not a valid bucket name")
	}
	b.client.SetS3EnableDualstack(s.dualstack)
	if s.accelerate {
		b.client.SetS3TransferAccelerate("s3-accelerate.amazonaws.com")
	}
	return b, nil
}

// newTransport returns a transport. If AWS_CA_BUNDLE is set, it trusts only the authorities in that file.
func newTransport(secure bool) (*http.Transport, error) {
	transport, err := minio.DefaultTransport(secure)
	if err != nil {
		return nil, err
	}
	transport.MaxResponseHeaderBytes = maxHeader
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
		return nil, errors.New("AWS_CA_BUNDLE: the file has no certificates")
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
	ctx = context.WithValue(ctx, pagesKey{}, new(atomic.Int32))
	for file := range b.client.ListObjectsIter(ctx, b.name, minio.ListObjectsOptions{Recursive: true, MaxKeys: most}) {
		switch {
		case file.Err != nil:
			return names, file.Err
		case file.Key >= end || len(names) == most: // names are sorted
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

// pagesKey is the key of the count of a list's requests. A server may send empty pages, each with a token for the next:
// the client would ask for them until its time is over.
type pagesKey struct{}

// boundedAnswers bounds all answers but files, because the client keeps these in memory. The client must not follow
// redirects. Otherwise a bucket could make the gateway fetch any URL that it can reach, and serve the answer.
type boundedAnswers struct{ to http.RoundTripper }

func (b boundedAnswers) RoundTrip(req *http.Request) (*http.Response, error) {
	pages, _ := req.Context().Value(pagesKey{}).(*atomic.Int32)
	if pages != nil && pages.Add(1) > maxPages {
		return nil, errPages
	}
	resp, err := b.to.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	isFile := req.Method == http.MethodGet && resp.StatusCode == http.StatusOK && req.URL.RawQuery == ""
	if !isFile {
		resp.Body = &boundedBody{resp.Body, maxAnswer, maxTags}
	}
	return resp, nil
}

// boundedBody is a body that fails when it exceeds its limits. The client takes some KiB of memory for each file of a
// list, however short its text is.
type boundedBody struct {
	io.ReadCloser
	left, tags int
}

func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.left -= n
	if b.tags -= bytes.Count(p[:n], []byte("<")); b.left < 0 || b.tags < 0 {
		return 0, errAnswer
	}
	return n, err
}
