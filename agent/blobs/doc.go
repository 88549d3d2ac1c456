// Package blobs keeps files of results that are too large to travel in them. A device asks for a slot while its call
// runs, uploads the file to an address that works once, and names the slot in its result; whoever reads the result gets
// an address that works until it expires. The bytes are in a bucket (a folder, or S3), what is known of them in the
// registry's store.
package blobs
