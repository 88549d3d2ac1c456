package redisconn

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
)

// topology is the arrangement of the servers behind a URL.
type topology int

const (
	topologySingle topology = iota
	topologyCluster
	topologySentinel
)

const (
	defaultPort         = "6379"
	defaultSentinelPort = "26379"
)

// address is a parsed URL.
type address struct {
	topology topology
	hosts    []string // host:port; of the sentinels with topologySentinel
	tls      bool
	roots    *x509.CertPool // authorities of the servers' certificates; nil: the system's
	cert     string         // file of this client's certificate; empty: none
	key      string         // file of its private key
	username string
	password string
	master   string // with topologySentinel
	db       int
	timeout  time.Duration // of dialling, of one read and of one write
}

// trust reads the certificates of the authorities that may sign the servers' certificates.
func (a *address) trust(caFile string) error {
	if caFile == "" {
		return nil
	}
	if !a.tls {
		return errors.New("redis: a CA file is set, but the URL does not use TLS; use rediss://")
	}
	text, err := os.ReadFile(caFile)
	if err != nil {
		return fmt.Errorf("redis: read the CA file: %w", err)
	}
	a.roots = x509.NewCertPool()
	if !a.roots.AppendCertsFromPEM(text) {
		return fmt.Errorf("redis: %s holds no certificate in PEM form", caFile)
	}
	return nil
}

// identify sets the files of this client's certificate and key, and reads them once to find mistakes early.
func (a *address) identify(certFile, keyFile string) error {
	switch {
	case certFile == "" && keyFile == "":
		return nil
	case certFile == "" || keyFile == "":
		return errors.New("redis: set both or neither: a client certificate is of no use without its key")
	case !a.tls:
		return errors.New("redis: a client certificate is set, but the URL does not use TLS; use rediss://")
	}
	a.cert, a.key = certFile, keyFile
	if _, err := tls.LoadX509KeyPair(certFile, keyFile); err != nil {
		return fmt.Errorf("redis: read the client certificate: %w", err)
	}
	return nil
}

// certificate returns what reads this client's certificate for a connection, or nil if it has none.
func (a *address) certificate() func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	if a.cert == "" {
		return nil
	}
	cert, key := a.cert, a.key
	return func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(cert, key)
		return &pair, err
	}
}

// CheckURL returns an error if a URL is invalid. It does not connect, and does not repeat the password. The forms are:
//
//	redis://[user:password@]host:port[/db]                           one server
//	redis://[user:password@]h1:p1,h2:p2,h3:p3                        a Cluster, from several seeds
//	redis://[user:password@]host:port?cluster=true                   a Cluster, from one seed
//	redis+sentinel://[user:password@]h1:p1,h2:p2/master-name[/db]    a master behind Sentinel
//
// With rediss and rediss+sentinel all connections use TLS.
func CheckURL(raw string) error {
	_, err := parseURL(raw)
	return err
}

// CheckCA is documented at redisstore.CheckCA.
func CheckCA(raw, file string) error {
	a, err := parseURL(raw)
	if err != nil {
		return err
	}
	return a.trust(file)
}

// CheckClientCertificate is documented at redisstore.CheckClientCertificate.
func CheckClientCertificate(raw, certFile, keyFile string) error {
	a, err := parseURL(raw)
	if err != nil {
		return err
	}
	return a.identify(certFile, keyFile)
}

// parseURL reads the forms of URL that CheckURL accepts. Its errors name the fault and quote nothing of the URL: a
// password with an unescaped '/' or '@' would otherwise end up in a log.
func parseURL(raw string) (address, error) {
	var a address
	scheme, rest, ok := strings.Cut(raw, "://")
	if !ok {
		return a, errors.New("redis URL: no scheme; use redis://host:port or one of its variants")
	}
	scheme, sentinel := strings.CutSuffix(scheme, "+sentinel")
	switch scheme {
	case "redis":
	case "rediss":
		a.tls = true
	default:
		return a, errors.New("redis URL: the scheme must be redis, rediss, redis+sentinel or rediss+sentinel")
	}
	if strings.Contains(rest, "#") {
		return a, errors.New("redis URL: a '#' must be written as %23")
	}
	rest, query, _ := strings.Cut(rest, "?")
	authority, path, _ := strings.Cut(rest, "/")
	if strings.Contains(path+query, "@") { // an '@' only follows a user or a password
		return a, errors.New("redis URL: a '/' in the user name or the password must be written as %2F, a '?' as %3F")
	}
	if i := strings.LastIndexByte(authority, '@'); i >= 0 {
		if err := a.setUser(authority[:i]); err != nil {
			return a, err
		}
		authority = authority[i+1:]
	}
	if sentinel {
		a.topology = topologySentinel
	}
	if err := a.setHosts(authority); err != nil {
		return a, err
	}
	if err := a.setQuery(query); err != nil {
		return a, err
	}
	return a, a.setPath(strings.TrimSuffix(path, "/"))
}

func (a *address) setUser(info string) error {
	user, password, _ := strings.Cut(info, ":")
	var err error
	if a.username, err = url.PathUnescape(user); err != nil {
		return errors.New("redis URL: the user name is not properly percent-encoded")
	}
	if a.password, err = url.PathUnescape(password); err != nil {
		return errors.New("redis URL: the password is not properly percent-encoded")
	}
	return nil
}

func (a *address) setHosts(list string) error {
	port := defaultPort
	if a.topology == topologySentinel {
		port = defaultSentinelPort
	}
	for i, h := range strings.Split(list, ",") {
		host, err := withPort(h, port)
		if err != nil {
			return fmt.Errorf("redis URL: address %d: %w", i+1, err)
		}
		a.hosts = append(a.hosts, host)
	}
	if len(a.hosts) > 1 && a.topology == topologySingle {
		a.topology = topologyCluster
	}
	return nil
}

func withPort(h, port string) (string, error) {
	bare := strings.TrimSuffix(strings.TrimPrefix(h, "["), "]")
	if !strings.Contains(h, ":") || net.ParseIP(bare) != nil && bare != h {
		h = net.JoinHostPort(bare, port)
	}
	host, port, err := net.SplitHostPort(h)
	switch {
	case err != nil:
		return "", errors.New("not of the form host:port " +
			"(a '/' in a password must be written as %2F, an IPv6 address in brackets)")
	case host == "":
		return "", errors.New("the host is missing")
	}
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
		return "", errors.New("the port must be a number between 1 and 65535")
	}
	return net.JoinHostPort(host, port), nil
}

func (a *address) setQuery(query string) error {
	values, err := url.ParseQuery(query)
	if err != nil {
		return errors.New("redis URL: the part after '?' is malformed")
	}
	for name, v := range values {
		if name != "cluster" {
			return errors.New("redis URL: the only parameter is cluster")
		}
		forced, err := strconv.ParseBool(v[0])
		switch {
		case err != nil:
			return errors.New("redis URL: cluster must be true or false")
		case forced && a.topology == topologySentinel:
			return errors.New("redis URL: cluster and sentinel cannot be combined")
		case forced:
			a.topology = topologyCluster
		case a.topology == topologyCluster:
			return errors.New("redis URL: several addresses mean a cluster; cluster=false contradicts them")
		}
	}
	return nil
}

func (a *address) setPath(path string) error {
	db := path
	if a.topology == topologySentinel {
		a.master, db, _ = strings.Cut(path, "/")
		if a.master == "" {
			return errors.New("redis URL: the name of the master is missing; use redis+sentinel://host:port/name")
		}
	}
	if db == "" {
		return nil
	}
	n, err := strconv.Atoi(db)
	if err != nil || n < 0 {
		return errors.New("redis URL: the database must be a number")
	}
	if n != 0 && a.topology == topologyCluster {
		return errors.New("redis URL: a cluster has only database 0")
	}
	a.db = n
	return nil
}
