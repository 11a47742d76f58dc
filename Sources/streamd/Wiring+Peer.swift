import StreamSources

extension PeerConfiguration {
  init(_ peer: Configuration.Peer, of stream: Configuration.Stream) {
    self.init(address: peer.address, stream: peer.stream ?? stream.name)
    (filter, token) = (peer.filter, peer.token?.content)
    maximumEventBytes = peer.maxEventBytes ?? maximumEventBytes
    // As for derived streams: a batch that fits into the log is stored as a whole, with its position.
    batchLimit.events = min(batchLimit.events, max(1, stream.buffer.events / 4))
    batchLimit.bytes = min(batchLimit.bytes, stream.buffer.bytes / 4)
    retry = Backoff(stream.retry)
  }
}
