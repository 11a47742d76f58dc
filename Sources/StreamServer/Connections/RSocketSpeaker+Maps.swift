import MappedLog
import RSocket
import Reactive
import StreamProtocol

// Requests of maps: for a region, and for events from upstream that its reader wants.

extension RSocketSpeaker {
  /// The client may read the stream.
  func map(
    _ request: RequestID, of stream: ServedStream, isSingle: Bool, _ demand: Subscribers.Demand,
    _ options: SubscribeOptions
  ) {
    worker.loop.assertOnLoop()
    do throws(RequestFailure) {
      guard stream.configuration.isMapped else { throw .notMapped(stream) }
      guard let user = identity.credentials?.user else {
        throw .init(.notMappable, "\"\(stream.name)\" cannot be mapped over TCP")
      }
      guard encoding == .rsocket else {
        throw .init(.notMappable, "\"\(stream.name)\" cannot be mapped over a WebSocket")
      }
      if isSingle {
        try sendMap(request, of: stream, options, user: user)
      } else {
        try demandEvents(request, of: stream, demand, options)
      }
    } catch {
      connection.refuse(request, error, of: stream.name)
    }
  }

  private func sendMap(
    _ request: RequestID, of stream: ServedStream, _ options: SubscribeOptions, user: UInt32
  ) throws(RequestFailure) {
    guard options.position == nil else {
      throw .init(.invalidRequest, "option \"position\" is for the demand of a map, which is a stream")
    }
    let opened = try stream.openMap(from: options.from, for: user)
    let extras = connection.needExtras()
    let written = extras.startMaps(at: connection.sentByteCount)
    let excess = worker.accounts.maps.add(
      of: identity.number, connection.share.account.user, to: connection.socket.raw, written)
    if let excess { throw .init(.tooManyMaps, excess.sentence(for: identity.user)) }
    let region = opened.region
    let reply = MapReply(
      version: UInt64(MapLayout.version), generation: region.generation, size: UInt64(region.byteCount),
      position: opened.position, missed: opened.missed)
    extras.hold(opened.hold)
    connection.attach(region, opened.page, to: request) {
      machine.sendPayload(StreamID(request), Payload(data: reply.json), isComplete: true)
    }
    worker.trace(identity, stream: stream.name, "maps generation \(region.generation) from event \(opened.position)")
  }

  /// Begins the demand of a map's reader.
  private func demandEvents(
    _ request: RequestID, of stream: ServedStream, _ demand: Subscribers.Demand, _ options: SubscribeOptions
  ) throws(RequestFailure) {
    guard options.from == .replay, options.onLag == nil else {
      throw .init(.invalidRequest, "the demand of a map has only the option \"position\"")
    }
    guard let position = options.position else {
      throw .init(.invalidRequest, "the demand of a map requires the option \"position\"")
    }
    guard position <= stream.log.read({ storage, _ in storage.endPosition }) else {
      throw .init(.unknownPosition, "no event has the position \(position) yet")
    }
    connection.addDemand(request, of: stream, at: position, demand)
    worker.trace(
      identity, stream: stream.name,
      "requests events of the map from event \(position), with \(demand.max.map { "a credit of \($0)" } ?? "unlimited credit")"
    )
  }
}

extension Connection {
  fileprivate func addDemand(
    _ request: RequestID, of stream: ServedStream, at position: UInt64, _ demand: Subscribers.Demand
  ) {
    let lane = worker.lane(of: stream)
    let machine = SubscriptionMachine(
      cursor: Cursor(position: position), demand: demand, onLag: stream.configuration.onLag,
      format: EventFormat(.map, ids: true, completes: false))
    lane.add(insert(request, lane, machine))
  }

  /// Restores the demand of a map's reader, whose region another process has marked as replaced.
  func restoreDemand(_ saved: SavedConnection.Subscription, on stream: ServedStream) {
    let request = RequestID(saved.id)
    guard stream.configuration.isMapped else { return sendFailure(request, .noMap(of: stream.name)) }
    addDemand(request, of: stream, at: saved.cursor.position, saved.credit)
  }

  /// Ends the demand of a map's reader if the stream has no map any more.
  func reapplyMap(to subscription: StreamSubscription) {
    worker.loop.assertOnLoop()
    let stream = subscription.lane.stream
    guard subscription.machine.format.isMap, !stream.configuration.isMapped else { return }
    fail(subscription, .noMap(of: stream.name))
  }
}

extension RequestFailure {
  /// Clients of the last release compare how the sentence ends.
  static func notMapped(_ stream: ServedStream) -> Self {
    let remark = stream.isConfigured ? "without map = true in the configuration, " : ""
    return Self(.notMapped, "\(remark)\"\(stream.name)\" is not mapped")
  }

  fileprivate static func noMap(of stream: String) -> Self {
    Self(.mapRemoved, "\"\(stream)\" is not mapped any more")
  }
}
