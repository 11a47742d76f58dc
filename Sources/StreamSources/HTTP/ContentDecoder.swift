import CZlib

/// Why a body cannot be decoded: a sentence as in `SourceFailure`.
struct ContentFault: Error, Equatable {
  let sentence: String
}

/// The coding of a response's body. Only gzip and deflate are asked for.
enum ContentCoding: Equatable {
  case gzip
  case deflate

  /// The value of Accept-Encoding.
  static let accepted = "gzip, deflate"

  /// Codings that cannot be decoded here. Any other name is no coding, such as the `aws-chunked` or `UTF-8` of badly
  /// configured servers: the bytes are then used as they are. Source: IANA, "HTTP Content Coding Registry", and names
  /// that servers used before it.
  private static let others = [
    "aes128gcm", "br", "bzip2", "compress", "dcb", "dcz", "exi", "lzma", "pack200-gzip", "x-bzip2", "x-compress", "xz",
    "zstd",
  ]

  /// - Parameter fields: the values of all fields Content-Encoding.
  /// - Returns: nil if the body is not encoded.
  /// - Throws: for a coding that cannot be decoded, and for several codings.
  static func of(_ fields: [FieldValue]) throws(ContentFault) -> ContentCoding? {
    var coding: ContentCoding?
    for name in fields.flatMap({ $0.text.lowercased().split(separator: ",") }) {
      // Some servers write a name in quotes, or a quality after it.
      let name = name.drop { $0.isWhitespace || $0 == "\"" }.prefix { !$0.isWhitespace && $0 != "\"" && $0 != ";" }
      let next: ContentCoding
      switch name {
      case "gzip", "x-gzip": next = .gzip
      case "deflate": next = .deflate
      case _ where others.contains(String(name)):
        throw ContentFault(sentence: "the body has the Content-Encoding \(name)")
      default: continue
      }
      guard coding == nil else { throw ContentFault(sentence: "the body has several content encodings") }
      coding = next
    }
    return coding
  }
}

/// Decodes the body of one response: gzip, with any number of members, or deflate, with zlib's head or without. Unlike
/// libcurl's decoding, it notices a body that is cut off. Or decodes the compressed messages of one WebSocket.
@safe final class ContentDecoder {
  private enum Phase {
    case start  // can become: inside
    case inside  // can become: complete
    case complete  // can become: inside, for the next member
  }

  private let coding: ContentCoding
  /// Whether its input is the messages of a WebSocket, each with the bytes that its sender has removed from the end. They
  /// are one deflate stream, of which a message may refer to those before it. Source: RFC 7692, section 7.2.2.
  private let isOfMessages: Bool
  private let stream = UnsafeMutablePointer<z_stream>.allocate(capacity: 1)
  private let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: 16 << 10, alignment: 1)
  private var phase = Phase.start
  private var outputCount = 0
  /// Whether the body is deflate without zlib's head.
  private var isRaw = false
  /// The number of bytes after the end of such a body: some servers send zlib's checksum nevertheless.
  private var trailerCount = 0

  init(_ coding: ContentCoding, isOfMessages: Bool = false) {
    self.coding = coding
    self.isOfMessages = isOfMessages
    unsafe stream.initialize(to: z_stream())
  }

  deinit {
    unsafe inflateEnd(stream)
    unsafe stream.deallocate()
    unsafe buffer.deallocate()
  }

  /// The bytes that the last call of `decode` has produced. They are valid until the next call.
  var output: UnsafeRawBufferPointer { unsafe UnsafeRawBufferPointer(rebasing: buffer[..<outputCount]) }

  var hasOutput: Bool { outputCount > 0 }

  /// Marks the output as taken.
  func clear() { outputCount = 0 }

  /// Decodes until the output is full, at most 16 KiB, or the input is used up; if there is no output, all input is used.
  /// - Returns: the number of bytes used.
  /// - Throws: when the bytes do not follow the coding.
  func decode(_ input: UnsafeRawBufferPointer) throws(ContentFault) -> Int {
    var used = 0
    outputCount = 0
    while unsafe outputCount < buffer.count {
      let rest = unsafe UnsafeRawBufferPointer(rebasing: input[used...])
      switch phase {
      case .start:
        guard let first = unsafe rest.first else { return used }
        try begin(first)
      case .complete where isOfMessages:  // a sender may end the deflate stream with a message
        guard unsafe !rest.isEmpty else { return used }
        guard unsafe inflateReset(stream) == Z_OK else { throw damaged }
        phase = .inside
      case .complete where isRaw:
        trailerCount += rest.count
        guard trailerCount <= 4 else { throw damaged }
        return input.count
      case .complete:
        guard let next = unsafe rest.firstIndex(where: { $0 != 0 }) else { return input.count }  // padding
        guard coding == .gzip, unsafe rest[next] == 0x1F, unsafe inflateReset(stream) == Z_OK else { throw damaged }
        used += next
        phase = .inside
      case .inside:
        let before = outputCount
        let count = try unsafe inflate(rest)
        used += count
        if phase == .inside, count == 0, outputCount == before { return used }
      }
    }
    return used
  }

  /// Called when the response has ended.
  /// - Throws: when the body has not ended.
  func end() throws(ContentFault) {
    if case .inside = phase { throw ContentFault(sentence: "the body, encoded with \(coding), is cut off") }
  }

  private var damaged: ContentFault {
    ContentFault(sentence: "the body is not encoded with \(coding), as it says, or damaged")
  }

  private func begin(_ first: UInt8) throws(ContentFault) {
    // RFC 1950: the lower half of the first byte is 8, the method. No encoder begins a deflate stream with such a byte.
    isRaw = isOfMessages || coding == .deflate && first & 0x0F != 8
    let windowBits = coding == .gzip ? MAX_WBITS + 16 : isRaw ? -MAX_WBITS : MAX_WBITS
    guard unsafe inflateInit2_(stream, windowBits, ZLIB_VERSION, CInt(MemoryLayout<z_stream>.size)) == Z_OK else {
      throw ContentFault(sentence: "out of memory")
    }
    phase = .inside
  }

  private func inflate(_ input: UnsafeRawBufferPointer) throws(ContentFault) -> Int {
    // zlib does not write to its input.
    let bytes = unsafe UnsafeMutableRawPointer(mutating: input.baseAddress)?.assumingMemoryBound(to: UInt8.self)
    unsafe stream.pointee.next_in = unsafe bytes
    unsafe stream.pointee.avail_in = CUnsignedInt(input.count)
    let room = unsafe UnsafeMutableRawBufferPointer(rebasing: buffer[outputCount...])
    unsafe stream.pointee.next_out = unsafe room.baseAddress?.assumingMemoryBound(to: UInt8.self)
    unsafe stream.pointee.avail_out = CUnsignedInt(room.count)
    switch unsafe CZlib.inflate(stream, Z_NO_FLUSH) {
    case Z_OK, Z_BUF_ERROR: break
    case Z_STREAM_END: phase = .complete
    case Z_MEM_ERROR: throw ContentFault(sentence: "out of memory")
    default: throw damaged
    }
    outputCount += unsafe room.count - Int(stream.pointee.avail_out)
    return unsafe input.count - Int(stream.pointee.avail_in)
  }
}
