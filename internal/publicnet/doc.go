// Package publicnet keeps requests that follow somebody's URL away from where they must not go: the machine itself, the
// networks around it, and the services of cloud providers that hand out credentials.
//
// An address is looked at when the socket is about to connect to it (Guard.Control). By then a name has been resolved
// for the last time, so neither the form a host is written in nor a name whose address changes makes a difference.
package publicnet
