/// An exchange whose input is values for a stream.
class PublishingExchange: Exchange {
  final let publication: Publication

  init(_ request: HTTPRequest, _ publication: Publication, on http: HTTPSpeaker) {
    self.publication = publication
    super.init(request, on: http)
    publication.changed = { [weak self] in self?.streamDidChange() }
  }

  final var stream: ServedStream { publication.stream }

  override var publishedStreams: [String] { [stream.name] }
  override var hasInbound: Bool { true }

  /// Bytes that wait here, and those beyond the publisher's share of its stream.
  override var heldByteCount: Int {
    super.heldByteCount + publication.arrived.byteCount + (publication.status?.excessBytes ?? 0)
  }

  /// Tells the client what the stream has taken, or why it takes no more.
  func answer() {}

  private func streamDidChange() {
    guard isInProgress, connection.phase == .open else { return }
    _ = publication.refresh()
    answer()
    connection.settle()
    _ = connection.flush()
  }

  override func leave() {
    publication.leave()
    super.leave()
  }
}
