// Go's libraries of table.toml; pinned, so that a red check is ours.
module clients

go 1.21

require (
	github.com/bradfitz/gomemcache v0.0.0-20260422231931-4d751bb6e37c
	github.com/rainycape/memcache v0.0.0-20150622160815-1031fa0ce2f2
)
