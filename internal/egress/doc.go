// Package egress is the way out for programs that load what strangers name, such as a browser: a proxy on loopback that
// connects to public addresses only.
//
// Every name is resolved once, here, and the address that was checked is the one that is dialled: neither the spelling
// of a host, nor a redirect, nor a name whose address changes leads anywhere else. CheckURL says the same of a URL
// before anything starts, in words; it is a courtesy, the Proxy is what holds.
package egress
