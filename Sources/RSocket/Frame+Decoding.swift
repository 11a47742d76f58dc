extension Frame {
  /// Decodes one whole frame.
  ///
  /// - Parameter body: the frame without its u24 length. Copied from, not kept.
  /// - Returns: `nil` for frames that RSocket requires a receiver to skip: an unknown type with the ignore flag, and a
  ///   frame about the connection that has a stream ID.
  /// - Throws: `CONNECTION_ERROR` for a frame that is too short, too long or of an unknown type; for a SETUP
  ///   `INVALID_SETUP` or, if it has another version and therefore possibly another layout, `UNSUPPORTED_SETUP`.
  public static func decode(_ body: UnsafeRawBufferPointer) throws(ProtocolViolation) -> Frame? {
    var reader = unsafe FrameReader(bytes: body)
    let id = StreamID(try reader.number(UInt32.self))
    let typeAndFlags = try reader.number(UInt16.self)
    let flags = FrameFlags(rawValue: typeAndFlags & 0x3ff)
    guard let type = FrameType(rawValue: UInt8(typeAndFlags >> 10)) else {
      if flags.contains(.ignore) { return nil }
      throw .malformed("frame type 0x\(String(typeAndFlags >> 10, radix: 16)) is unknown")
    }
    if type.isAboutConnection && id != .connection { return nil }
    reader.type = type
    let frame = try decode(type, id, flags, &reader)
    guard reader.remaining == 0 else { throw reader.violation("has \(reader.remaining) bytes too many") }
    return frame
  }

  private static func decode(
    _ type: FrameType, _ id: StreamID, _ flags: FrameFlags, _ reader: inout FrameReader
  ) throws(ProtocolViolation) -> Frame {
    switch type {
    case .payload:
      .payload(
        id, try reader.payload(flags), follows: flags.contains(.follows), isComplete: flags.contains(.complete),
        isNext: flags.contains(.next))
    case .requestN: .requestN(id, try reader.number(UInt32.self))
    case .cancel: .cancel(id)
    case .requestResponse: try reader.request(id, .response, flags)
    case .requestFNF: try reader.request(id, .fireAndForget, flags)
    case .requestStream: try reader.request(id, .stream, flags)
    case .requestChannel: try reader.request(id, .channel, flags)
    case .error: .error(id, ErrorCode(rawValue: try reader.number(UInt32.self)), reader.textToTheEnd())
    case .setup: .setup(try reader.setup(flags))
    case .lease:
      .lease(
        timeToLive: .wire(try reader.number(UInt32.self) & 0x7fff_ffff),
        count: try reader.number(UInt32.self) & 0x7fff_ffff,
        metadata: reader.bytesToTheEnd(if: flags.contains(.metadata)))
    case .keepalive:
      .keepalive(
        respond: flags.contains(.respond), position: try reader.position(), data: reader.bytesToTheEnd())
    case .metadataPush: .metadataPush(reader.bytesToTheEnd())
    case .resume: try reader.resume()
    case .resumeOK: .resumeOK(clientPosition: try reader.position())
    case .ext:
      .ext(
        id, type: try reader.number(UInt32.self) & 0x7fff_ffff, isIgnorable: flags.contains(.ignore),
        hasMetadata: flags.contains(.metadata), body: reader.bytesToTheEnd())
    }
  }
}

extension FrameType {
  /// Whether the frame belongs to stream 0.
  var isAboutConnection: Bool {
    switch self {
    case .setup, .lease, .keepalive, .metadataPush, .resume, .resumeOK: true
    case .requestResponse, .requestFNF, .requestStream, .requestChannel, .requestN, .cancel, .payload, .error, .ext:
      false
    }
  }

  /// The name in the RSocket specification.
  var name: String {
    switch self {
    case .setup: "SETUP"
    case .lease: "LEASE"
    case .keepalive: "KEEPALIVE"
    case .requestResponse: "REQUEST_RESPONSE"
    case .requestFNF: "REQUEST_FNF"
    case .requestStream: "REQUEST_STREAM"
    case .requestChannel: "REQUEST_CHANNEL"
    case .requestN: "REQUEST_N"
    case .cancel: "CANCEL"
    case .payload: "PAYLOAD"
    case .error: "ERROR"
    case .metadataPush: "METADATA_PUSH"
    case .resume: "RESUME"
    case .resumeOK: "RESUME_OK"
    case .ext: "EXT"
    }
  }
}

/// Reads a frame from front to back; each read checks the number of remaining bytes.
@safe private struct FrameReader {
  let bytes: UnsafeRawBufferPointer
  var offset = 0
  /// `nil` while the header is read.
  var type: FrameType?

  init(bytes: UnsafeRawBufferPointer) { unsafe self.bytes = unsafe bytes }

  var remaining: Int { unsafe bytes.count - offset }

  func violation(_ what: String) -> ProtocolViolation {
    ProtocolViolation(
      type == .setup ? .invalidSetup : .connectionError,
      unsafe "a \(type?.name ?? "frame") of \(bytes.count) bytes \(what)")
  }

  mutating func take(_ count: Int, _ what: StaticString) throws(ProtocolViolation) -> UnsafeRawBufferPointer {
    guard count <= remaining else { throw violation("ends before its \(what)") }
    defer { offset += count }
    return unsafe UnsafeRawBufferPointer(rebasing: bytes[offset..<offset + count])
  }

  mutating func number<Number: FixedWidthInteger>(_: Number.Type) throws(ProtocolViolation) -> Number {
    unsafe Number(bigEndian: try take(MemoryLayout<Number>.size, "fixed fields").loadUnaligned(as: Number.self))
  }

  mutating func position() throws(ProtocolViolation) -> UInt64 { try number(UInt64.self) & (1 << 63 - 1) }

  mutating func bytesToTheEnd() -> [UInt8] {
    defer { offset = unsafe bytes.count }
    return unsafe [UInt8](bytes[offset...])
  }

  /// Only LEASE has an optional last part without a length.
  mutating func bytesToTheEnd(if isPresent: Bool) -> [UInt8]? { isPresent ? bytesToTheEnd() : nil }

  mutating func textToTheEnd() -> String {
    defer { offset = unsafe bytes.count }
    return unsafe String(decoding: bytes[offset...], as: UTF8.self)
  }

  mutating func payload(_ flags: FrameFlags) throws(ProtocolViolation) -> Payload {
    guard flags.contains(.metadata) else { return Payload(data: bytesToTheEnd()) }
    let high = Int(try number(UInt8.self))
    let count = high << 16 | Int(try number(UInt16.self))
    guard count <= remaining else { throw violation("has a metadata length of \(count), past its end") }
    let metadata = unsafe [UInt8](try take(count, "metadata"))
    return Payload(metadata: metadata, data: bytesToTheEnd())
  }

  mutating func request(
    _ id: StreamID, _ kind: RequestKind, _ flags: FrameFlags
  ) throws(ProtocolViolation) -> Frame {
    let initialRequest: UInt32 = kind.hasInitialRequest ? try number(UInt32.self) : kind == .response ? 1 : 0
    return .request(
      id, kind, initialRequest: initialRequest, try payload(flags), follows: flags.contains(.follows),
      isComplete: kind == .channel && flags.contains(.complete))
  }

  mutating func setup(_ flags: FrameFlags) throws(ProtocolViolation) -> Setup {
    var setup = Setup()
    setup.majorVersion = try number(UInt16.self)
    setup.minorVersion = try number(UInt16.self)
    guard setup.majorVersion == 1, setup.minorVersion == 0 else {
      throw ProtocolViolation(
        .unsupportedSetup, "version \(setup.majorVersion).\(setup.minorVersion) is not supported, only 1.0")
    }
    setup.keepaliveInterval = .wire(try span("keepalive interval"))
    setup.maximumLifetime = .wire(try span("maximum lifetime"))
    setup.honorsLease = flags.contains(.lease)
    if flags.contains(.resume) {
      setup.resumeToken = unsafe [UInt8](try take(Int(try number(UInt16.self)), "resume token"))
    }
    setup.metadataMIMEType = try mimeType()
    setup.dataMIMEType = try mimeType()
    setup.payload = try payload(flags)
    return setup
  }

  private mutating func span(_ name: StaticString) throws(ProtocolViolation) -> UInt32 {
    let milliseconds = try number(UInt32.self)
    guard milliseconds > 0, milliseconds <= 0x7fff_ffff else {
      throw violation("has a \(name) of \(milliseconds) ms, not 1...2147483647")
    }
    return milliseconds
  }

  private mutating func mimeType() throws(ProtocolViolation) -> String {
    let bytes = try unsafe take(Int(try number(UInt8.self)), "MIME types")
    guard let text = unsafe String(validating: bytes, as: UTF8.self) else {
      throw violation("has a MIME type not in UTF-8")
    }
    return text
  }

  mutating func resume() throws(ProtocolViolation) -> Frame {
    _ = try number(UInt32.self)  // the version: no version supports resumption here
    let token = unsafe [UInt8](try take(Int(try number(UInt16.self)), "resume token"))
    return .resume(token: token, serverPosition: try position(), clientPosition: try position())
  }
}
