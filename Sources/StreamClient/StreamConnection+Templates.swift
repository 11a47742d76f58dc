import StreamProtocol

extension StreamConnection {
  /// Makes the stream called `name`, which a template of the server's configuration fits; does nothing if it exists.
  ///
  /// A subscription and a published value make such a stream as well, but ``value(of:key:)`` does not. A stream that
  /// nobody uses is forgotten after a time of its template's.
  ///
  /// - Throws: ``StreamError/rejected(_:_:)`` with the reason `noStream` if no template fits the name, `noEffect` for a
  ///   configured stream, `mayNotRead` or, if clients publish to the stream, `mayNotWrite` without the right, and
  ///   `tooManyStreams` if all streams that this client may have are in use; `mayNotCommand` is a server without templates.
  ///   ``StreamError/failed(_:_:_:)`` if the stream cannot be made. ``StreamError/canceled(_:_:)`` also when the task is
  ///   cancelled.
  public func make(_ name: String) async throws(StreamError) { try await complete(.make(stream: name)) }

  /// Ends the stream called `name`, which a template has made, with its events. Its subscriptions and publishers end with
  /// ``StreamError/canceled(_:_:)`` and the reason `removed`. The next request for the name makes another stream.
  ///
  /// - Throws: ``StreamError/rejected(_:_:)`` with the reason `noStream` if no template has made such a stream, `noEffect`
  ///   if another stream is made of it, and `mayNotWrite` unless this client may publish to it or has made it, or is root;
  ///   `mayNotCommand` is a server without templates. ``StreamError/canceled(_:_:)`` also when the task is cancelled.
  public func forget(_ name: String) async throws(StreamError) { try await complete(.forget(stream: name)) }

  /// Asks the upstream of a template with `body = "request"`, once.
  ///
  /// - Parameters:
  ///   - name: the stream that gets the answer, or its name without the last parameter, which the server then makes.
  ///   - body: what the upstream is asked, not empty.
  /// - Returns: the name of the stream. It is the same for the same request under the same name.
  /// - Throws: ``StreamError/rejected(_:_:)`` with the reason `noStream` if no template takes the request, `mayNotWrite` without
  ///   the right, `otherRequest` if the stream is the answer to another request, `tooManyStreams` if all streams that this
  ///   client may have are in use, and `notKept` if the server cannot store the request. ``StreamError/canceled(_:_:)`` also when
  ///   the task is cancelled.
  public func request(_ name: String, _ body: [UInt8]) async throws(StreamError) -> String {
    guard let event = try await EventIntake(ask(name, body).request).next() else {
      throw .canceled("the task was cancelled")
    }
    return String(decoding: event.data, as: UTF8.self)
  }

  /// Asks an upstream; the value has the name of the stream.
  package func ask(_ name: String, _ body: [UInt8]) -> RemoteValue {
    RemoteValue(request: RemoteRequest(connection: self, kind: .response, name: name, data: body))
  }

  private func complete(_ command: ControlCommand) async throws(StreamError) {
    if try await EventIntake(perform(command).request).next() != nil { return }
    throw .canceled("the task was cancelled")
  }
}
