/// Identifies the kind of a journal entry by 128 bits, the same on every machine.
///
/// `journalctl MESSAGE_ID=…` filters by it, and the message catalogue explains it. Random; an id is never reused for
/// another meaning.
public struct MessageID: Sendable, Hashable, CustomStringConvertible {
  /// The first and the last 8 bytes, in the order of the text.
  public let high, low: UInt64

  /// The id whose text is the digits of `high`, then those of `low`.
  public init(_ high: UInt64, _ low: UInt64) {
    (self.high, self.low) = (high, low)
  }

  /// 32 lower-case hexadecimal digits, the journal's format.
  public var description: String {
    [high, low].map { half in
      let digits = String(half, radix: 16)
      return String(repeating: "0", count: 16 - digits.count) + digits
    }.joined()
  }
}

extension MessageID {
  /// The daemon has started.
  public static let start = MessageID(0x44d8_db3f_f4a5_4e9d, 0x939b_b67b_6d8c_c30e)
  /// The daemon is stopping.
  public static let stop = MessageID(0x1cd8_ed84_1c12_47e9, 0x9ae8_ed38_0a64_eba8)
  /// A client was denied access.
  public static let clientRefused = MessageID(0x3320_c18b_ba32_4ef2, 0xaff6_2219_dd39_cf69)
  /// A client violated the protocol, or was silent for longer than it had announced, and was disconnected.
  public static let clientCutOff = MessageID(0x818f_c8b5_5d17_43b3, 0xbedd_e83b_6667_8360)
  /// A subscription fell behind and lost events.
  public static let clientLagged = MessageID(0xadf9_2c32_5f34_44a5, 0x81f4_03b2_f5de_3093)
  /// A stalled subscription blocks the source of a stream with `overflow = "block"`.
  public static let streamHeldUp = MessageID(0xa802_4d3f_7932_44f9, 0x951a_c638_fa47_823c)
  /// A source failed and will be retried.
  public static let sourceFailing = MessageID(0x4329_d3d8_7199_4d7c, 0xad48_7a73_594d_d30f)
  /// A source that had failed delivers again.
  public static let sourceRecovered = MessageID(0x14aa_e36a_ba9f_40b4, 0xac3f_f8b2_e431_493c)
  /// A line that a source program wrote to its standard error.
  public static let programSaid = MessageID(0x8062_3516_568f_49ba, 0x82ce_5a5f_805c_6ebf)
  /// A source with demand waits because its host is rate-limited or busy; or it has resumed.
  public static let sourceWaiting = MessageID(0xec48_5444_626b_42e7, 0x83e4_2b54_2795_cd90)
  /// Neither an event nor a successful fetch of a stream has come for longer than its `expect_every`.
  public static let streamStale = MessageID(0x94de_825f_afb9_48c5, 0xbe8b_b30d_54fc_30c7)
  /// A stream that was stale is not any more.
  public static let streamNotStale = MessageID(0x9876_dc88_61be_4aca, 0x98b9_2488_de60_5aa1)
  /// The state of a stream's keys lacks events.
  public static let stateIncomplete = MessageID(0x3888_2f65_801d_4966, 0x9893_4da7_c5ab_5483)
  /// The state of a stream's keys has all events again.
  public static let stateComplete = MessageID(0xb6ea_2483_bbd2_437e, 0xb63e_177a_41f6_3940)
  /// A program of a stream's pipeline failed on an event.
  public static let eventFailed = MessageID(0x07bf_86ed_a56a_44f8, 0x8071_6b24_3a6d_1f01)
  /// Events of another stream were lost before a stream that is made of it had read them; or it has read all others.
  public static let eventsMissed = MessageID(0xd726_8787_fa10_5f98, 0x0839_d8ad_941b_d710)
  /// A limit of the configuration or of the machine was reached: connections, descriptors, requests.
  public static let limitReached = MessageID(0xf9de_7488_2795_4883, 0x9337_129e_1f72_804d)
  /// Connections of the previous process continue in this one.
  public static let connectionsTaken = MessageID(0xcc98_01f0_345a_412d, 0x8748_562c_49d9_f686)
  /// The configuration has errors and was refused.
  public static let configurationRefused = MessageID(0x8915_078b_a956_4abd, 0x9aa6_49c8_2ccc_d6b5)
  /// The configuration has errors, and the previous process' configuration is served.
  public static let formerConfigurationServed = MessageID(0x0e7b_1d7c_c8a7_4bc3, 0xac47_7415_1296_8cb1)
  /// The configuration was reloaded.
  public static let reloaded = MessageID(0x5334_ca0f_a532_a905, 0x7beb_6f35_261c_3e55)
  /// A reloaded configuration has errors or cannot be read; nothing has changed.
  public static let reloadRefused = MessageID(0x811b_e6d4_62da_af93, 0x0a23_d3da_069d_1ddf)
  /// A changed key takes effect only after a restart.
  public static let restartNeeded = MessageID(0x5d66_f9d9_0263_2c39, 0xda93_1711_f05e_afa8)
  /// A stream's stored events cannot be used: the stream starts empty.
  public static let stateLost = MessageID(0x0896_37e6_cc9c_adfb, 0x9df6_1821_8db3_2474)
  /// A power failure truncated a stream's events: those that had reached the disk are present.
  public static let stateCutOff = MessageID(0xe829_17bc_6f3e_3eff, 0x1073_64ca_53d0_2e08)
  /// A stream's events will be lost earlier than its configuration demands.
  public static let stateNotKept = MessageID(0x95e7_8082_953e_f406, 0x56de_051b_4d12_3b55)
  /// A stream's events are stored on disk again.
  public static let stateKept = MessageID(0xea99_55fa_4ac7_47a8, 0xa17d_8dc4_91d0_dae7)
  /// A client connected, sent a request, or left; only at the level `debug`.
  public static let clientActs = MessageID(0x40c0_9653_01d9_4f05, 0xbed0_9bf9_3dba_340a)
  /// The level of the journal was changed at run time.
  public static let logLevelChanged = MessageID(0x4b61_c8bb_fc37_4079, 0xa462_9670_39a8_3e29)
  /// A passed descriptor cannot be used and was closed.
  public static let descriptorRefused = MessageID(0xbd71_f255_feb4_4194, 0xacb1_876a_d9b3_bc9e)
  /// An event loop is stuck; the service manager is about to restart the daemon.
  public static let progressLate = MessageID(0xd9c4_1456_b2c7_475c, 0x8f76_a3d4_ebf3_6c8e)
  /// This host leads a shard of the fleet.
  public static let fleetLeads = MessageID(0x341c_b294_16d0_46cb, 0xb4de_b5dd_e2db_f918)
  /// This host no longer leads a shard of the fleet.
  public static let fleetFollows = MessageID(0x721a_d2cf_b04f_4787, 0xb02f_7180_9f1f_9760)
  /// There is no connection to the fleet's brokers.
  public static let fleetDisconnected = MessageID(0x586d_cfa2_90a2_401e, 0x86b8_9436_d26a_8a64)
  /// The fleet's brokers can be reached again.
  public static let fleetConnected = MessageID(0x7b14_599d_7335_4fbf, 0x9601_a057_dcdc_5653)
  /// This host may lack events of the fleet, although it is connected to the brokers; or has them all again.
  public static let fleetStale = MessageID(0xd0ae_20af_03ef_7ae6, 0xd293_4e51_34d5_93d1)
  /// Events of the fleet were removed before this host had read them.
  public static let fleetEventsMissed = MessageID(0xf360_d323_266a_4718, 0x82c2_3c12_069a_7d6d)
  /// The fleet's brokers have lost events, and ids continue above a gap.
  public static let fleetEpoch = MessageID(0xb328_5099_6cbb_45fa, 0x8638_3af1_a564_e86b)
  /// The fleet has other events under ids that this host has used.
  public static let fleetConflict = MessageID(0xde9b_326d_435c_4166, 0x875b_7b08_fb65_783c)
  /// Hosts of the fleet have different definitions of a stream; or none has any more.
  public static let fleetDefinition = MessageID(0x27cc_058e_eace_46e4, 0xa428_1863_7ac6_5b07)
  /// An entry of the fleet's log cannot be read.
  public static let fleetDamaged = MessageID(0xe357_06b9_224a_45ee, 0xb0af_eece_c4d2_a95f)
  /// The fleet has entries of a later version.
  public static let fleetUpgrade = MessageID(0xc2de_ff21_4a47_4ea5, 0x8ba4_6f3e_02ac_28a1)
}
