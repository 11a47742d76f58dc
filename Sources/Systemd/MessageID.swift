/// What kind of thing a journal entry reports: the same 128 bits for ever, on every machine.
///
/// `journalctl MESSAGE_ID=…` selects by it, and the message catalogue explains by it. Made once at random; an id is
/// never reused for another meaning.
public struct MessageID: Sendable, Hashable, CustomStringConvertible {
  /// The first and the last 8 bytes, as they are written.
  public let high, low: UInt64

  /// The id whose text is the digits of `high`, then those of `low`.
  public init(_ high: UInt64, _ low: UInt64) {
    (self.high, self.low) = (high, low)
  }

  /// 32 lower-case hexadecimal digits, as the journal wants it.
  public var description: String {
    [high, low].map { half in
      let digits = String(half, radix: 16)
      return String(repeating: "0", count: 16 - digits.count) + digits
    }.joined()
  }
}

extension MessageID {
  /// The daemon serves.
  public static let start = MessageID(0x44d8_db3f_f4a5_4e9d, 0x939b_b67b_6d8c_c30e)
  /// The daemon is on its way out, as it was told to.
  public static let stop = MessageID(0x1cd8_ed84_1c12_47e9, 0x9ae8_ed38_0a64_eba8)
  /// A client may not read or write what it asked for.
  public static let clientRefused = MessageID(0x3320_c18b_ba32_4ef2, 0xaff6_2219_dd39_cf69)
  /// A client broke the protocol, or fell silent for longer than it had promised, and was cut off.
  public static let clientCutOff = MessageID(0x818f_c8b5_5d17_43b3, 0xbedd_e83b_6667_8360)
  /// A subscriber fell off the end of what its stream holds, and lost events.
  public static let clientLagged = MessageID(0xadf9_2c32_5f34_44a5, 0x81f4_03b2_f5de_3093)
  /// The source of a stream that drops nothing waits for a subscriber that does not go on.
  public static let streamHeldUp = MessageID(0xa802_4d3f_7932_44f9, 0x951a_c638_fa47_823c)
  /// A source failed, and is tried again later.
  public static let sourceFailing = MessageID(0x4329_d3d8_7199_4d7c, 0xad48_7a73_594d_d30f)
  /// A source that was failing delivers again.
  public static let sourceRecovered = MessageID(0x14aa_e36a_ba9f_40b4, 0xac3f_f8b2_e431_493c)
  /// A line that a program which is a source wrote to its standard error.
  public static let programSaid = MessageID(0x8062_3516_568f_49ba, 0x82ce_5a5f_805c_6ebf)
  /// A source is not asked, though somebody wants it, because its host is not to be asked now; or that is over.
  public static let sourceWaiting = MessageID(0xec48_5444_626b_42e7, 0x83e4_2b54_2795_cd90)
  /// A program of a stream's pipeline failed on an event.
  public static let eventFailed = MessageID(0x07bf_86ed_a56a_44f8, 0x8071_6b24_3a6d_1f01)
  /// A limit of the configuration or of the machine was reached: connections, descriptors, requests.
  public static let limitReached = MessageID(0xf9de_7488_2795_4883, 0x9337_129e_1f72_804d)
  /// Connections of the process before go on in this one.
  public static let connectionsTaken = MessageID(0xcc98_01f0_345a_412d, 0x8748_562c_49d9_f686)
  /// The configuration has mistakes, and was not taken.
  public static let configurationRefused = MessageID(0x8915_078b_a956_4abd, 0x9aa6_49c8_2ccc_d6b5)
  /// The configuration has mistakes, and the one of the process before is served.
  public static let formerConfigurationServed = MessageID(0x0e7b_1d7c_c8a7_4bc3, 0xac47_7415_1296_8cb1)
  /// The configuration was read anew, and holds.
  public static let reloaded = MessageID(0x5334_ca0f_a532_a905, 0x7beb_6f35_261c_3e55)
  /// A configuration that was read anew has mistakes, or cannot be had; nothing has changed.
  public static let reloadRefused = MessageID(0x811b_e6d4_62da_af93, 0x0a23_d3da_069d_1ddf)
  /// A key was changed that only a restart can apply.
  public static let restartNeeded = MessageID(0x5d66_f9d9_0263_2c39, 0xda93_1711_f05e_afa8)
  /// What was kept of a stream's events cannot be used: the stream begins anew.
  public static let stateLost = MessageID(0x0896_37e6_cc9c_adfb, 0x9df6_1821_8db3_2474)
  /// A loss of power cut a stream's events off: what had reached the disk is there.
  public static let stateCutOff = MessageID(0xe829_17bc_6f3e_3eff, 0x1073_64ca_53d0_2e08)
  /// A stream's events will not outlive what the configuration says they should.
  public static let stateNotKept = MessageID(0x95e7_8082_953e_f406, 0x56de_051b_4d12_3b55)
  /// A client came, asked for something, or left; only at the level `debug`.
  public static let clientActs = MessageID(0x40c0_9653_01d9_4f05, 0xbed0_9bf9_3dba_340a)
  /// Somebody changed the level of the journal while the daemon runs.
  public static let logLevelChanged = MessageID(0x4b61_c8bb_fc37_4079, 0xa462_9670_39a8_3e29)
  /// A descriptor that the service manager passed is of no use here, and was closed.
  public static let descriptorRefused = MessageID(0xbd71_f255_feb4_4194, 0xacb1_876a_d9b3_bc9e)
  /// Part of the daemon has not come round in time; the service manager is about to restart it.
  public static let progressLate = MessageID(0xd9c4_1456_b2c7_475c, 0x8f76_a3d4_ebf3_6c8e)
}
