//! Recipes: which format each class of weights gets, and the widths of activations and KV codes.

use std::str::FromStr;

use base::Refusal;
use ops::{Acts, KvFormat, WeightFormat};

/// Weights that share a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RoleClass {
    /// Routed experts.
    Experts,
    /// Attention projections.
    Attention,
    /// Linear-attention projections.
    LinearAttention,
    /// Shared experts.
    Shared,
    /// Dense FFN layers.
    Dense,
    /// Routers.
    Router,
    /// Scalar gates: in_proj_ba, shared-expert gate.
    SmallGates,
    /// Output head.
    Head,
}

impl RoleClass {
    /// All classes, in the order in which a recipe prints them.
    pub const ALL: [RoleClass; 8] = [
        RoleClass::Experts,
        RoleClass::Attention,
        RoleClass::LinearAttention,
        RoleClass::Shared,
        RoleClass::Dense,
        RoleClass::Router,
        RoleClass::SmallGates,
        RoleClass::Head,
    ];

    /// Name of the setting.
    pub const fn name(self) -> &'static str {
        match self {
            RoleClass::Experts => "experts",
            RoleClass::Attention => "attention",
            RoleClass::LinearAttention => "linear_attention",
            RoleClass::Shared => "shared",
            RoleClass::Dense => "dense",
            RoleClass::Router => "router",
            RoleClass::SmallGates => "small_gates",
            RoleClass::Head => "head",
        }
    }

    /// Formats this class may have. Routers and scalar gates are small and sensitive: 16 bits always
    /// (docs/arithmetic.md §2). Experts have one zero-free format so that blocks stay `[codes][scales]`.
    pub const fn allowed(self) -> &'static [WeightFormat] {
        use WeightFormat::{H4, H6, H8, I4, I8, I16};
        match self {
            RoleClass::Experts => &[I4, I8, I16],
            RoleClass::Router | RoleClass::SmallGates => &[I16],
            _ => &[I4, H4, H6, H8, I8, I16],
        }
    }
}

/// Formats of all weight classes (the part a cache is keyed by) and the run-time widths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Recipe {
    formats: [WeightFormat; 8],
    /// Width of activation codes (and Q, and through it P). Routers and scalar gates always take 16 bits.
    pub acts: Acts,
    /// Width of K and V codes.
    pub kv: KvFormat,
}

/// A named recipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Profile {
    /// Experts I4, projections H6, shared, dense and head I8; A8, k8v8.
    Default,
    /// 16 bits everywhere.
    Reference,
    /// As default with H4 projections and k4v4.
    Small,
}

impl Profile {
    /// All profiles.
    pub const ALL: [Profile; 3] = [Profile::Default, Profile::Reference, Profile::Small];

    /// Name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Profile::Default => "default",
            Profile::Reference => "reference",
            Profile::Small => "small",
        }
    }

    /// The recipe it names.
    pub const fn recipe(self) -> Recipe {
        use WeightFormat::{H4, H6, I4, I8, I16};
        match self {
            Profile::Default => {
                Recipe { formats: [I4, H6, H6, I8, I8, I16, I16, I8], acts: Acts::A8, kv: KvFormat::K8 }
            }
            Profile::Reference => Recipe { formats: [I16; 8], acts: Acts::A16, kv: KvFormat::K16 },
            Profile::Small => {
                Recipe { formats: [I4, H4, H4, I8, I8, I16, I16, I8], acts: Acts::A8, kv: KvFormat::K4 }
            }
        }
    }
}

impl FromStr for Profile {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        let found = Profile::ALL.into_iter().find(|p| p.name() == s);
        found.ok_or_else(|| format!("{s}: not one of default, reference, small"))
    }
}

impl Recipe {
    /// Format of a class.
    pub fn format(&self, class: RoleClass) -> WeightFormat {
        self.formats[class as usize]
    }

    /// Replaces the format of a class; refused if the class can't have it.
    pub fn set(&mut self, class: RoleClass, format: WeightFormat) -> Result<(), Refusal> {
        if !class.allowed().contains(&format) {
            let names: Vec<_> = class.allowed().iter().map(|f| f.name()).collect();
            let limit = format!("one of {}", names.join(", "));
            return Err(Refusal::value(class.name(), format.name(), limit, "choose one of these"));
        }
        self.formats[class as usize] = format;
        Ok(())
    }

    /// The part of the recipe that decides a cache's content, as stable text.
    pub fn weight_key(&self) -> String {
        let parts = RoleClass::ALL.map(|c| format!("{}={}", c.name(), self.format(c).name()));
        parts.join(",")
    }

    /// The profile this is, if it is one unchanged.
    pub fn profile(&self) -> Option<Profile> {
        Profile::ALL.into_iter().find(|p| p.recipe() == *self)
    }
}

impl std::fmt::Display for Recipe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{},acts=a{},kv={}", self.weight_key(), self.acts.bits(), self.kv.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_are_what_the_contract_says() {
        assert_eq!(
            Profile::Default.recipe().to_string(),
            "experts=i4,attention=h6,linear_attention=h6,\
             shared=i8,dense=i8,router=i16,small_gates=i16,head=i8,acts=a8,kv=k8v8"
        );
        assert_eq!(
            Profile::Small.recipe().to_string(),
            "experts=i4,attention=h4,linear_attention=h4,\
             shared=i8,dense=i8,router=i16,small_gates=i16,head=i8,acts=a8,kv=k4v4"
        );
        for profile in Profile::ALL {
            for class in RoleClass::ALL {
                assert!(class.allowed().contains(&profile.recipe().format(class)));
            }
            assert_eq!(profile.recipe().profile(), Some(profile));
        }
    }

    #[test]
    fn a_class_refuses_what_it_cannot_have() {
        let mut recipe = Profile::Default.recipe();
        let error = recipe.set(RoleClass::Router, WeightFormat::I4).unwrap_err();
        assert!(error.to_string().contains("router: i4"), "{error}");
        recipe.set(RoleClass::Head, WeightFormat::I16).unwrap();
        assert_eq!(recipe.format(RoleClass::Head), WeightFormat::I16);
        assert_eq!(recipe.profile(), None);
    }
}
