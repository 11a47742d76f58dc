extension Frame {
  /// Appends the frame, preceded by its u24 length, as a socket transmits it.
  ///
  /// - Precondition: the whole frame has at most 2^24-1 bytes and a MIME type at most 255. Longer payloads are sent
  ///   through ``ConnectionMachine``, which fragments them.
  public func encode(into bytes: inout [UInt8]) {
    switch self {
    case .setup(let setup):
      let flags = FrameFlags().with(.resume, if: setup.resumeToken != nil).with(.lease, if: setup.honorsLease)
        .with(.metadata, if: setup.payload.metadata != nil)
      bytes.appendFrame(.connection, .setup, flags) { setup.encode(into: &$0) }
    case .lease(let timeToLive, let count, let metadata):
      bytes.appendFrame(.connection, .lease, FrameFlags().with(.metadata, if: metadata != nil)) {
        $0.append(bigEndian: timeToLive.wireMilliseconds)
        $0.append(bigEndian: count)
        $0.append(contentsOf: metadata ?? [])
      }
    case .keepalive(let respond, let position, let data):
      bytes.appendFrame(.connection, .keepalive, FrameFlags().with(.respond, if: respond)) {
        $0.append(bigEndian: position)
        $0.append(contentsOf: data)
      }
    case .request(let id, let kind, let initialRequest, let payload, let follows, let isComplete):
      let flags = FrameFlags().with(.metadata, if: payload.metadata != nil).with(.follows, if: follows)
        .with(.complete, if: isComplete && kind == .channel)
      bytes.appendFrame(id, FrameType(kind), flags) {
        if kind.hasInitialRequest { $0.append(bigEndian: initialRequest) }
        $0.append(payload)
      }
    case .requestN(let id, let count):
      bytes.appendFrame(id, .requestN) { $0.append(bigEndian: count) }
    case .cancel(let id):
      bytes.appendFrame(id, .cancel) { _ in }
    case .payload(let id, let payload, let follows, let isComplete, let isNext):
      let flags = FrameFlags().with(.metadata, if: payload.metadata != nil).with(.follows, if: follows)
        .with(.complete, if: isComplete).with(.next, if: isNext)
      bytes.appendFrame(id, .payload, flags) { $0.append(payload) }
    case .error(let id, let code, let message):
      bytes.appendFrame(id, .error) {
        $0.append(bigEndian: code.rawValue)
        $0.append(contentsOf: message.utf8)
      }
    case .metadataPush(let metadata):
      bytes.appendFrame(.connection, .metadataPush, .metadata) { $0.append(contentsOf: metadata) }
    case .resume(let token, let serverPosition, let clientPosition):
      bytes.appendFrame(.connection, .resume) {
        $0.append(bigEndian: UInt16(1))
        $0.append(bigEndian: UInt16(0))
        $0.append(bigEndian: UInt16(token.count))
        $0.append(contentsOf: token)
        $0.append(bigEndian: serverPosition)
        $0.append(bigEndian: clientPosition)
      }
    case .resumeOK(let clientPosition):
      bytes.appendFrame(.connection, .resumeOK) { $0.append(bigEndian: clientPosition) }
    case .ext(let id, let type, let isIgnorable, let hasMetadata, let body):
      let flags = FrameFlags().with(.ignore, if: isIgnorable).with(.metadata, if: hasMetadata)
      bytes.appendFrame(id, .ext, flags) {
        $0.append(bigEndian: type)
        $0.append(contentsOf: body)
      }
    }
  }
}

extension Setup {
  fileprivate func encode(into bytes: inout [UInt8]) {
    bytes.append(bigEndian: majorVersion)
    bytes.append(bigEndian: minorVersion)
    bytes.append(bigEndian: max(keepaliveInterval.wireMilliseconds, 1))
    bytes.append(bigEndian: max(maximumLifetime.wireMilliseconds, 1))
    if let resumeToken {
      bytes.append(bigEndian: UInt16(resumeToken.count))
      bytes.append(contentsOf: resumeToken)
    }
    for mimeType in [metadataMIMEType, dataMIMEType] {
      bytes.append(UInt8(mimeType.utf8.count))
      bytes.append(contentsOf: mimeType.utf8)
    }
    bytes.append(payload)
  }
}

extension [UInt8] {
  package mutating func append(bigEndian number: some FixedWidthInteger) {
    unsafe Swift.withUnsafeBytes(of: number.bigEndian) { unsafe append(contentsOf: $0) }
  }

  /// Appends metadata, preceded by its u24 length, and data.
  mutating func append(_ payload: Payload) {
    if let metadata = payload.metadata {
      append(UInt8(truncatingIfNeeded: metadata.count >> 16))
      append(bigEndian: UInt16(truncatingIfNeeded: metadata.count))
      append(contentsOf: metadata)
    }
    append(contentsOf: payload.data)
  }

  /// Appends length and header, lets `body` append the rest, and then sets the length.
  mutating func appendFrame(
    _ id: StreamID, _ type: FrameType, _ flags: FrameFlags = [], body: (inout [UInt8]) -> Void
  ) {
    let start = count
    append(contentsOf: [0, 0, 0])
    append(bigEndian: id.rawValue)
    append(bigEndian: UInt16(type.rawValue) << 10 | flags.rawValue)
    body(&self)
    let length = count - start - FrameLayout.lengthByteCount
    precondition(length <= FrameLayout.maximumByteCount, "a frame of \(length) bytes exceeds the largest length")
    self[start] = UInt8(truncatingIfNeeded: length >> 16)
    self[start + 1] = UInt8(truncatingIfNeeded: length >> 8)
    self[start + 2] = UInt8(truncatingIfNeeded: length)
  }
}
